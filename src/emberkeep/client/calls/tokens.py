"""REST API calls for named tokens."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.rest_tokens import CallerInfo, NewToken, TokenCreated, TokenList

_JSON = {"Content-Type": "application/json"}


class TokenCalls:
    """A RestClient's calls for named tokens. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def caller(self) -> CallerInfo:
        """Return who the holder of this client's token is."""
        return decode(await self._http.call(Request("GET", "/identity")), CallerInfo)

    async def list(self) -> TokenList:
        """Return all named tokens."""
        return decode(await self._http.call(Request("GET", "/tokens")), TokenList)

    async def create(self, token: NewToken) -> TokenCreated:
        """Make a token. If a reply is lost, two tokens may be made; the second one does not replace the first.

        Raises Conflict if two tokens of the name are valid.
        """
        request = Request("POST", "/tokens", headers=_JSON, body=lambda: msgspec.json.encode(token))
        return decode(await self._http.call(request), TokenCreated)

    async def revoke(self, name: str) -> TokenList:
        """Revoke a token by its id, or all of a name. Return those that were valid. Raises Absent."""
        return decode(await self._http.call(Request("DELETE", f"/tokens/{quote(name, safe='')}")), TokenList)

"""The shared storage over REST."""

from __future__ import annotations

from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.rest_storage import StorageInfo


class StorageCalls:
    """Belongs to a RestClient, and raises what that raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def status(self) -> StorageInfo:
        """Whose it is, and what lies there that no job needs."""
        return decode(await self._http.call(Request("GET", "/storage")), StorageInfo)

    async def adopt(self) -> StorageInfo:
        """Let what lies there belong to the cluster. Raises Conflict."""
        return decode(await self._http.call(Request("POST", "/storage/adopt")), StorageInfo)

    async def purge(self, *, force: bool = False) -> StorageInfo:
        """The same, and delete what belongs to no known job; ``force``: also what may be in use. Raises Conflict."""
        parameters = {"force": "true"} if force else {}
        return decode(await self._http.call(Request("POST", "/storage/purge", parameters)), StorageInfo)

"""REST bodies about named tokens and their holders."""

from __future__ import annotations

from typing import Literal

from emberkeep.base.identity import Role
from emberkeep.protocol.rest import Duration, Kebab, Millis

DEFAULT_VALID_FOR = 90 * 24 * 3600 * 1000  # ms


class CallerInfo(Kebab, frozen=True, kw_only=True):
    """Who calls: the holder of the request's token.

    ``namespace``: "" if it sees all jobs. ``expires``: when an OpenID Connect token expires; -1 for other tokens.
    """

    name: str
    role: Role
    namespace: str
    expires: Millis = -1


class NewToken(Kebab, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made. ``namespace``: "" for all jobs."""

    name: str
    role: Role
    namespace: str = ""
    valid_for: Duration = DEFAULT_VALID_FOR


class TokenInfo(Kebab, frozen=True, kw_only=True):
    """One token, without its secret. ``id`` is the token's public part."""

    id: str
    name: str
    role: Role
    namespace: str
    state: Literal["valid", "expired", "revoked"]
    created: Millis
    expires: Millis
    revoked: Millis


class TokenList(Kebab, frozen=True, kw_only=True):
    """Named tokens, the oldest first."""

    tokens: list[TokenInfo]


class TokenCreated(Kebab, frozen=True, kw_only=True):
    """A new token. ``token`` is its text, which is shown this once."""

    token: str
    info: TokenInfo

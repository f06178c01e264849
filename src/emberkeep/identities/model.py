"""Named tokens as they are stored: plain data, without the secrets."""

from __future__ import annotations

import re

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import CLUSTER_NAME, Identity, Role

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._@-]{0,62}"
_NAME = re.compile(NAME_PATTERN)
_NAME_RULE = "use up to 63 letters, digits and '.', '_', '@', '-', beginning with a letter or a digit"


class NamedToken(Compatible, frozen=True, kw_only=True):
    """One token. Times are Unix milliseconds.

    ``id``: the public part of the token. ``sha256``: hex digest of its secret, which is random and has 256 bits, so
    that a plain hash cannot be reversed. ``revoked_ms``: when it was revoked; 0 if it was not.
    """

    id: str
    name: str
    role: Role
    sha256: str
    created_ms: int
    expires_ms: int
    namespace: str = ""
    revoked_ms: int = 0

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.role, self.namespace)

    def is_valid(self, now_ms: int) -> bool:
        return not self.revoked_ms and now_ms < self.expires_ms


class NamedTokens(Compatible, frozen=True, kw_only=True):
    """All named tokens of a cluster, the oldest first. Persisted (kind "named-tokens", version 1)."""

    tokens: tuple[NamedToken, ...] = ()


def parse_token_name(text: str, field: str = "name") -> str:
    """Return the name of a token's holder. Raises InvalidInput."""
    if text == CLUSTER_NAME:
        raise InvalidInput(
            f"{field}: {CLUSTER_NAME!r} is the name of the cluster's own token", field=field, hint="choose another name"
        )
    if not _NAME.fullmatch(text):
        raise InvalidInput(f"{field}: {text[:80]!r} is not a valid name", field=field, hint=_NAME_RULE)
    return text


def parse_namespace(text: str, field: str = "namespace") -> str:
    """Return the name of a namespace; "" for none. Raises InvalidInput."""
    if text and not _NAME.fullmatch(text):
        raise InvalidInput(f"{field}: {text[:80]!r} is not a valid name", field=field, hint=_NAME_RULE)
    return text

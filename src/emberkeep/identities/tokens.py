"""Decisions about named tokens: issue, revoke, and recognise them. Uses no clock, no random numbers and no storage.

A token's text is ``ek.<id>.<secret>``. The id is public: it finds the record, and people name the token by it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import msgspec

from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.identity import Identity
from emberkeep.identities.model import NamedToken, NamedTokens

MOST_VALID = 2  # of one name: the token in use, and the one that replaces it
MOST_TOKENS = 1000
REMEMBERED_MS = 30 * 24 * 3600 * 1000  # for this long the cluster can say why a token is no longer valid
_PREFIX = "ek"


def token_text(token_id: str, secret: str) -> str:
    """Return the token as its holder gets it.

    >>> token_text("1a2b3c4d", "5e6f")
    'ek.1a2b3c4d.5e6f'
    """
    return f"{_PREFIX}.{token_id}.{secret}"


def digest(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def issue(tokens: NamedTokens, token: NamedToken, now_ms: int) -> NamedTokens:
    """Return the tokens with a new one, without those that ended more than REMEMBERED_MS ago.

    Raises Conflict if MOST_VALID tokens of its name are valid, or if there are MOST_TOKENS.
    """
    kept = [each for each in tokens.tokens if now_ms < _end(each) + REMEMBERED_MS]
    valid = [each.id for each in kept if each.name == token.name and each.is_valid(now_ms)]
    if len(valid) >= MOST_VALID:
        raise Conflict(
            f"{token.name!r} has {len(valid)} valid tokens: {', '.join(valid)}",
            hint=f"first revoke the one that is no longer used: `emberkeep token revoke {valid[0]}`",
        )
    if len(kept) >= MOST_TOKENS:
        raise Conflict(f"there are {len(kept)} tokens, the most that a cluster keeps", hint="revoke unused tokens")
    return NamedTokens(tokens=(*kept, token))


def revoke(tokens: NamedTokens, name: str, now_ms: int) -> tuple[NamedTokens, tuple[NamedToken, ...]]:
    """Revoke the token with the id ``name``, or all tokens of the holder ``name``.

    Return all tokens, and those that were valid until now. Raises Absent if there is neither.
    """
    found = [each for each in tokens.tokens if each.id == name] or [e for e in tokens.tokens if e.name == name]
    if not found:
        raise Absent(f"there is no token {name[:80]!r}", hint="`emberkeep token list` shows names and ids")
    ended = {each.id for each in found if each.is_valid(now_ms)}
    now = tuple(
        msgspec.structs.replace(each, revoked_ms=now_ms) if each.id in ended else each for each in tokens.tokens
    )
    return NamedTokens(tokens=now), tuple(each for each in now if each.id in ended)


def recognise(tokens: Iterable[NamedToken], credential: str) -> NamedToken | None:
    """Return the record of the token with this text, valid or not; None if there is no such token."""
    prefix, _, rest = credential.partition(".")
    token_id, _, secret = rest.partition(".")
    if prefix != _PREFIX or not secret:
        return None
    for token in tokens:
        if token.id == token_id and hmac.compare_digest(digest(secret), token.sha256):
            return token
    return None


def is_current(tokens: Iterable[NamedToken], identity: Identity, now_ms: int) -> bool:
    """Return True if a valid token gives exactly this identity."""
    return any(token.identity == identity and token.is_valid(now_ms) for token in tokens)


def _end(token: NamedToken) -> int:
    return token.revoked_ms or token.expires_ms

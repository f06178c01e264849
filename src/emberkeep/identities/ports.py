"""Ports: what named tokens need from outside."""

from __future__ import annotations

from typing import Protocol

from emberkeep.identities.model import NamedTokens


class TokenStore(Protocol):
    """The durable named tokens.

    Only the leader writes; a write is refused (Conflict) once a newer leader has opened the store.
    """

    async def record(self, tokens: NamedTokens) -> None:
        """Replace the stored tokens. Once this returns, every later leader reads the new ones.

        Raises Conflict, RetryLater, UnknownOutcome, Fatal (also if the stored ones cannot be read: they stay).
        """

    async def read(self) -> NamedTokens:
        """Return the tokens that were recorded last, or none if none were recorded.

        Raises Fatal (unreadable), RetryLater.
        """

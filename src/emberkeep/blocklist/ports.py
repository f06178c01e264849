"""Ports: what the blocklist needs from outside."""

from __future__ import annotations

from typing import Protocol

from emberkeep.blocklist.model import Blocklist


class BlocklistStore(Protocol):
    """The durable blocklist.

    Only the leader writes; a write is refused (Conflict) once a newer leader has opened the store.
    """

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        """Replace the stored blocklist. Once this returns, every later leader reads the new one.

        Raises Conflict, RetryLater, UnknownOutcome, Fatal.
        """

    async def blocklist(self) -> Blocklist:
        """Return the blocklist that was recorded last, or an empty one if none was recorded.

        Raises Fatal (unreadable), RetryLater.
        """

"""Ports: what the blocklist needs from outside."""

from __future__ import annotations

from typing import Protocol

from emberkeep.blocklist.model import Blocklist


class BlocklistStore(Protocol):
    """The durable list.

    Only the leader writes; a write is refused (Conflict) once a newer leader has opened the store.
    """

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        """Replace the list. On return every later leader will find it.

        Raises Conflict, RetryLater, UnknownOutcome, Fatal.
        """

    async def blocklist(self) -> Blocklist:
        """Return the list that was recorded last, an empty one if there is none.

        Raises Fatal (unreadable), RetryLater.
        """

"""What the blocklist needs from outside."""

from __future__ import annotations

from typing import Protocol

from emberkeep.blocklist.model import Blocklist


class BlocklistStore(Protocol):
    """The durable list. The leader writes; a write is refused (Conflict) once a newer leader has opened the store."""

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        """Replace the list; when this returns, every later leader finds it. Raises Conflict, RetryLater,
        UnknownOutcome, Fatal."""

    async def blocklist(self) -> Blocklist:
        """The list that was recorded last; an empty one when none ever was. Raises Fatal (unreadable), RetryLater."""

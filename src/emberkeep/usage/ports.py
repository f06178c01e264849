"""What the histories need from the outside."""

from __future__ import annotations

from typing import Protocol

from emberkeep.usage.histories import KeptHistories


class UsageStore(Protocol):
    """The histories that the leaders of one job store have written. Each leader writes its own only."""

    async def earlier(self, lineage: str, epoch: int) -> KeptHistories | None:
        """Return what the newest leader before ``epoch`` has written; None if nothing can be used.

        Raises Unavailable, OSError.
        """

    async def keep(self, lineage: str, epoch: int, histories: KeptHistories) -> None:
        """Write durably what this leader knows, in place of everything before. Raises EmberkeepError, OSError."""

"""The files of savepoints in memory, for retention."""

from __future__ import annotations

from collections.abc import Callable

from emberkeep.base.errors import EmberkeepError
from emberkeep.jobs.checkpoints import SavepointPointer


class MemorySavepoints:
    """Implements SavepointDisposal. ``failure``: raised by each deletion while it is set."""

    def __init__(self, on_delete: Callable[[SavepointPointer], None] = lambda _: None) -> None:
        self.deleted: list[str] = []
        self.failure: EmberkeepError | None = None
        self._on_delete = on_delete

    async def delete(self, savepoint: SavepointPointer, sibling: SavepointPointer | None) -> None:
        """See SavepointDisposal."""
        if self.failure is not None:
            raise self.failure
        self._on_delete(savepoint)
        self.deleted.append(savepoint.path)

"""The port through which files of retired savepoints are deleted."""

from __future__ import annotations

from typing import Protocol

from emberkeep.jobs.checkpoints import SavepointPointer


class SavepointDisposal(Protocol):
    """Deletes savepoints, in directories and object stores."""

    async def delete(self, savepoint: SavepointPointer, sibling: SavepointPointer | None) -> None:
        """Return once the savepoint's files are gone: deleted now, or certainly before. Repeating it does no harm.

        If nothing is at its path, its files count as gone only if ``sibling``, which is in the same directory, can be
        read. Raises EmberkeepError if files are or may be left; another savepoint at that path stays whole.
        """

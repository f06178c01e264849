"""Looks whether the shared storage answers and holds what this cluster has put there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.errors import Absent, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.files.ownership import read_owner

_SECONDS = 5.0


@dataclass(frozen=True)
class StorageSight:
    """``held``: something of this cluster was seen there. ``problem``: why it cannot be read now; "" also for a storage
    that nothing was ever put into."""

    held: bool
    problem: str = ""


class StorageProbe:
    """``storage``: the directory that all processes share; in it ``record``: the one with this cluster's ownership
    record; ``graphs``: that of its job graphs.

    A mount that is absent leaves an empty directory or none. So an empty one is no problem only as long as this process
    has never seen anything in it.
    """

    def __init__(self, storage: Path, record: Path, graphs: Path, patience: FilePatience | None = None) -> None:
        self._storage = storage
        self._record = record
        self._graphs = graphs
        self._patience = patience or FilePatience(_SECONDS)
        self._seen = False

    def expect(self) -> None:
        """This cluster has put something there, as is known otherwise."""
        self._seen = True

    def look(self) -> StorageSight:
        """Blocks, not for longer than a few seconds; raises nothing."""
        try:
            held = self._patience.run(self._storage, self._is_held)
        except EmberkeepError as error:
            return StorageSight(held=False, problem=error.message)
        self._seen = self._seen or held
        if held or not self._seen:
            return StorageSight(held=held)
        return StorageSight(held=False, problem=f"{self._storage} holds nothing of this cluster any more")

    def _is_held(self) -> bool:
        """Raises Unavailable."""
        try:
            if read_owner(self._record) is not None:
                return True
        except (Damaged, NewerFormat):
            return True  # it can be read
        except Unavailable:
            if _exists(self._record) or (self._seen and not _exists(self._storage)):
                raise
            # Nothing was ever put there, or a release has that kept no such record.
        try:
            next(self._graphs.iterdir(), None)
        except OSError as error:
            problem = cannot_read(self._graphs, error)
            if isinstance(problem, Absent) or not _exists(self._graphs.parent):
                return False
            raise problem from error
        return True


def _exists(directory: Path) -> bool:
    """Raises Unavailable."""
    try:
        return directory.exists()
    except OSError as error:
        raise Unavailable(f"{directory} cannot be read now: {error.strerror or error}") from error

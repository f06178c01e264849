"""Checks whether the shared storage answers and holds this cluster's data."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.errors import Absent, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.files.ownership import read_owner

_SECONDS = 5.0


@dataclass(frozen=True)
class StorageSight:
    """The result of one check.

    ``held``: data of this cluster was found. ``problem``: why the storage cannot be read now; "" also for a storage in
    which nothing was ever stored. ``free``: bytes that the file system has left; None if that is not known.
    """

    held: bool
    problem: str = ""
    free: int | None = field(default=None, compare=False)


class StorageProbe:
    """Checks one storage.

    ``storage``: the directory that all processes share. In it, ``record``: the directory with this cluster's ownership
    record; ``graphs``: the directory of its job graphs. A missing mount leaves an empty directory or none. So an empty
    storage is a problem once this process has seen data there.
    """

    def __init__(self, storage: Path, record: Path, graphs: Path, patience: FilePatience | None = None) -> None:
        self._storage = storage
        self._record = record
        self._graphs = graphs
        self._patience = patience or FilePatience(_SECONDS)
        self._seen = False

    def expect(self) -> None:
        """Record that the storage holds data of this cluster, so that an empty storage is a problem."""
        self._seen = True

    def look(self) -> StorageSight:
        """Check the storage. Blocks for a few seconds at most; the result reports every error."""
        try:
            held, free = self._patience.run(self._storage, self._measure)
        except EmberkeepError as error:
            return StorageSight(held=False, problem=error.message)
        self._seen = self._seen or held
        if held or not self._seen:
            return StorageSight(held=held, free=free)
        return StorageSight(held=False, problem=f"{self._storage} no longer has this cluster's data", free=free)

    def _measure(self) -> tuple[bool, int | None]:
        """Return whether the storage holds data of this cluster, and the bytes that are free. Raises Unavailable."""
        held = self._is_held()
        try:
            return held, shutil.disk_usage(self._storage).free
        except OSError:  # nothing was ever stored there
            return held, None

    def _is_held(self) -> bool:
        """True if the storage holds data of this cluster. Raises Unavailable."""
        try:
            if read_owner(self._record) is not None:
                return True
        except (Damaged, NewerFormat):
            return True  # the storage can be read
        except Unavailable:
            if _exists(self._record) or (self._seen and not _exists(self._storage)):
                raise
            # Nothing was ever stored there, or only by an older release, which kept no such record.
        try:
            next(self._graphs.iterdir(), None)
        except OSError as error:
            problem = cannot_read(self._graphs, error)
            if isinstance(problem, Absent) or not _exists(self._graphs.parent):
                return False
            raise problem from error
        return True


def _exists(directory: Path) -> bool:
    """True if the directory exists. Raises Unavailable if that cannot be determined."""
    try:
        return directory.exists()
    except OSError as error:
        raise Unavailable(f"{directory} cannot be read now: {error.strerror or error}") from error

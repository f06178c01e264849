"""Files that each leader writes for the next one, beside the events of the job store that the leaders share.

Each leader writes a file of its own, named by its epoch, and then removes those of earlier epochs, except those that a
newer release has written. So a deposed leader that still writes harms nothing, and a later release finds what it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.errors import EmberkeepError, Unavailable
from emberkeep.base.files.durable import sync_directory, write_file

_NAME: Final = re.compile(r"([0-9]{15})\.record")


class EpochFiles:
    """The files of one kind, in ``folder`` below the events of each job store.

    ``events``: the directory with a folder of events for each job store. ``problem`` returns why the storage is not
    this cluster's now, such as an empty directory where it is not mounted; None if it is. It blocks.
    """

    def __init__(self, events: Path, folder: str, problem: Callable[[], EmberkeepError | None]) -> None:
        self._events = events
        self._folder = folder
        self._problem = problem
        self._patience = FilePatience()
        self._left: set[Path] = set()

    async def earlier(self, lineage: str, epoch: int) -> list[tuple[Path, bytes]]:
        """Return the files of earlier epochs, the newest first. Raises Unavailable, OSError."""
        place = self._events / lineage / self._folder
        return await asyncio.to_thread(self._patience.run, place, lambda: self._read(place, epoch))

    def leave(self, path: Path) -> None:
        """Do not remove a file that ``earlier`` has returned and that a newer release has written."""
        self._left.add(path)

    async def keep(self, lineage: str, epoch: int, data: bytes) -> None:
        """Write the file of ``epoch`` durably, and remove those of earlier ones that are not left.

        Raises EmberkeepError, OSError.
        """
        place = self._events / lineage / self._folder
        await asyncio.to_thread(self._patience.run, place, lambda: self._write(place, epoch, data))

    def _read(self, place: Path, before: int) -> list[tuple[Path, bytes]]:
        self._require()
        found = []
        for epoch in sorted(_epochs(place), reverse=True):
            if epoch < before:
                path = _file(place, epoch)
                with contextlib.suppress(FileNotFoundError):  # another leader has just removed it
                    found.append((path, path.read_bytes()))
        return found

    def _write(self, place: Path, epoch: int, data: bytes) -> None:
        self._require()
        path = _file(place, epoch)
        if not path.exists():  # the leader's first write
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)  # the chronicle makes the folder above it
            sync_directory(place.parent)  # also if the maker of the folder died before it did so
        write_file(path, data)
        for earlier in _epochs(place):
            if earlier < epoch and _file(place, earlier) not in self._left:
                _file(place, earlier).unlink(missing_ok=True)

    def _require(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise Unavailable(f"the shared storage cannot be used: {problem}")


def _epochs(place: Path) -> list[int]:
    try:
        names = [path.name for path in place.iterdir()]
    except FileNotFoundError:
        return []
    return [int(match[1]) for match in map(_NAME.fullmatch, names) if match]


def _file(place: Path, epoch: int) -> Path:
    return place / f"{epoch:015d}.record"

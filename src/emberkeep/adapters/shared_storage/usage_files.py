"""Files with the usage of all task managers, beside the events of the job store that the leaders share.

Each leader writes a file of its own, named by its epoch, and removes those of earlier epochs. The file with the highest
epoch counts. So a deposed leader that still writes harms nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.errors import Damaged, EmberkeepError, Fatal, NewerFormat, Unavailable
from emberkeep.base.files.durable import sync_directory, write_file
from emberkeep.usage.encoding import decode_usage, encode_usage
from emberkeep.usage.histories import KeptHistories

log = structlog.get_logger(__name__)

_DIRECTORY: Final = "nodes"
_NAME: Final = re.compile(r"([0-9]{15})\.record")


class UsageFiles:
    """Implements UsageStore.

    ``events``: the directory with a folder of events for each job store. ``problem`` returns why the storage is not
    this cluster's now, such as an empty directory where it is not mounted; None if it is. It blocks.
    """

    def __init__(self, events: Path, problem: Callable[[], EmberkeepError | None]) -> None:
        self._events = events
        self._problem = problem
        self._patience = FilePatience()

    async def earlier(self, lineage: str, epoch: int) -> KeptHistories | None:
        place = self._events / lineage / _DIRECTORY
        return await asyncio.to_thread(self._patience.run, place, lambda: self._read(place, epoch))

    async def keep(self, lineage: str, epoch: int, histories: KeptHistories) -> None:
        place = self._events / lineage / _DIRECTORY
        await asyncio.to_thread(self._patience.run, place, lambda: self._write(place, epoch, histories))

    def _read(self, place: Path, before: int) -> KeptHistories | None:
        self._require()
        for epoch in sorted(_epochs(place), reverse=True):
            if epoch >= before:
                continue
            path = _file(place, epoch)
            try:
                return decode_usage(path.read_bytes(), where=str(path))
            except FileNotFoundError:
                continue  # another leader has just removed it
            except (Damaged, NewerFormat, Fatal) as error:
                log.warning("the usage of nodes in the past cannot be used", reason=str(error))
        return None

    def _write(self, place: Path, epoch: int, histories: KeptHistories) -> None:
        self._require()
        path = _file(place, epoch)
        if not path.exists():  # the leader's first write
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)  # the chronicle makes the folder above it
            sync_directory(place.parent)  # also if the maker of the folder died before it did so
        write_file(path, encode_usage(histories))
        for earlier in _epochs(place):
            if earlier < epoch:
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

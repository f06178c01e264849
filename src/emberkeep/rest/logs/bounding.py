"""Bounds the disk space of what drivers and executors print while they run.

They write by themselves, and go on when the task manager ends, so nothing can rotate their files. Bytes in the middle
are freed in place: all others keep their offsets, for the writer and for readers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

import structlog

from emberkeep.base.files.holes import NO_HOLES, data_ranges, punch
from emberkeep.base.files.hostile import open_to_free
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.bounding import to_free
from emberkeep.rest.ports import LogEntry
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0

Stored = Callable[[LogEntry], int]
"""A log → the end of what the shared storage has of its file."""


def end_of(entry: LogEntry) -> int:
    """Return the end of a log: where nothing is stored elsewhere, no byte waits for that."""
    return entry.size


class LogBounds:
    """Keeps the output files of jobs that have processes here within ``most`` bytes of disk space each.

    ``live``: returns these jobs. ``free``: frees a range of an open file, see ``punch``.
    """

    def __init__(
        self,
        catalogue: TaskManagerLogs,
        most: int,
        live: Callable[[], AbstractSet[JobId]],
        stored: Stored,
        *,
        free: Callable[[int, int, int], None] = punch,
    ) -> None:
        self._catalogue = catalogue
        self._most = most
        self._live = live
        self._stored = stored
        self._free = free
        self._jobs: AbstractSet[JobId] = frozenset()  # those of the last look
        self._problem = ""
        self._is_possible = True

    async def run(self) -> None:
        """Look every second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Free what is too much. A process that has ended since the last look is looked at once more."""
        live = frozenset(self._live())
        jobs, self._jobs = live | self._jobs, live
        if self._is_possible:
            await asyncio.to_thread(self._look, jobs)

    def _look(self, jobs: AbstractSet[JobId]) -> None:
        problem = ""
        for job_id in sorted(jobs):
            found = self._catalogue.of_jobs(job_id)
            if found.error is not None:
                problem = str(found.error)
            for entry in found.entries:
                try:
                    if entry.size > self._most // 2:
                        self._bound(entry)
                except OSError as error:
                    if error.errno in NO_HOLES:
                        self._is_possible = False
                        log.warning(
                            "the output of jobs is not bounded: the file system of its files cannot free parts of them",
                            reason=error.strerror,
                            hint="put taskmanager.working-dir on a local file system, such as ext4 or XFS",
                        )
                        return
                    problem = str(error)  # of one file: the others are bounded all the same
        if problem and problem != self._problem:
            log.warning("cannot look at the output of a job now, trying again", reason=problem)
        self._problem = problem

    def _bound(self, entry: LogEntry) -> None:
        """Free what is too much of one file. Raises OSError."""
        try:
            descriptor = open_to_free(entry.path)
        except FileNotFoundError:
            return
        try:
            kept = data_ranges(descriptor, os.fstat(descriptor).st_size)
            freed = to_free(kept, self._most, self._stored(entry))
            if freed is not None:
                self._free(descriptor, *freed)
        finally:
            os.close(descriptor)

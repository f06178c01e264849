"""Reads and searches parts of this process's logs, and waits for new bytes when a client follows a log."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from emberkeep.base.errors import Absent, Unavailable
from emberkeep.base.files.hostile import open_to_read
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB
from emberkeep.log_records import scan
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.rest.ports import LogCatalogue, LogChunk, LogEntry, LogFound, LogQuery, LogSearch
from emberkeep.rest.serving.log_contents import read_noted, search_noted

POLL_INTERVAL = 0.2  # seconds
# The log is gone, or a job has put something else in its place.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EPERM, errno.EACCES, errno.ENXIO})
_SEARCHES = 2  # at once; they compete with this process's heartbeats for the interpreter


class LogReader:
    """Lists and reads the logs of a catalogue. ``close`` ends all waits; ``monotonic`` returns seconds."""

    def __init__(
        self, catalogue: LogCatalogue, monotonic: Callable[[], float], *, poll_interval: float = POLL_INTERVAL
    ) -> None:
        self._catalogue = catalogue
        self._monotonic = monotonic
        self._poll_interval = poll_interval
        self._closing = asyncio.Event()
        self._searches = asyncio.Semaphore(_SEARCHES)

    def close(self) -> None:
        """End all waits, because the process is about to stop."""
        self._closing.set()

    async def entries(self, job_id: JobId | None) -> list[LogInfo]:
        """Return the logs of one job, or with None all logs."""
        return [_info(entry) for entry in await asyncio.to_thread(self._catalogue.entries, job_id)]

    async def read(self, log_id: str, query: LogQuery) -> LogChunk:
        """Return bytes of a log from ``query.offset`` on; a negative offset counts from the end.

        While there are no such bytes and the log may still grow, wait for up to ``query.wait`` seconds. With
        ``query.from_start``, an offset beyond the end means that the file was replaced (rotated): reading starts again
        at 0. Where bytes are not kept, reading starts at the note that says so. Raises Absent if there is no such log,
        or if it belongs to a job other than ``query.job_id``.
        """
        deadline = self._monotonic() + query.wait
        entry, start = await self._with_bytes(log_id, query.job_id, deadline, lambda size: _start(query, size))
        return await asyncio.to_thread(_read, entry, start, query.limit)

    async def search(self, log_id: str, wanted: LogSearch) -> LogFound:
        """Search a bounded part of a log: see LogSearch. Raises what ``read`` raises."""
        search = wanted.search
        deadline = self._monotonic() + (0.0 if search.backwards else wanted.wait)

        def start(size: int) -> int:
            return min(search.offset, size) if search.backwards or search.offset <= size else 0

        while True:
            entry, offset = await self._with_bytes(log_id, wanted.job_id, deadline, start)
            async with self._searches:
                result = await asyncio.to_thread(_search, entry, msgspec.structs.replace(search, offset=offset))
            if result.found.end > offset or result.complete or self._is_over(deadline):
                return result
            await self._pause(self._poll_interval)  # for the end of a line

    async def _with_bytes(
        self, log_id: str, job_id: JobId | None, deadline: float, start: Callable[[int], int]
    ) -> tuple[LogEntry, int]:
        """Wait until ``deadline`` for bytes after ``start(size)``; return the log's entry and that offset."""
        while True:
            entry = await asyncio.to_thread(self._find, log_id, job_id)
            offset = start(entry.size)
            if offset < entry.size or entry.complete or self._is_over(deadline):
                return entry, offset
            await self._pause(min(self._poll_interval, deadline - self._monotonic()))

    def _is_over(self, deadline: float) -> bool:
        return self._monotonic() >= deadline or self._closing.is_set()

    def _find(self, log_id: str, job_id: JobId | None) -> LogEntry:
        entry = self._catalogue.find(log_id)
        if job_id is not None and entry.job_id != job_id:
            raise Absent(f"job {job_id} has no log {log_id}")
        return entry

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


def _start(query: LogQuery, size: int) -> int:
    if query.offset < 0:
        return max(0, size + query.offset)
    return 0 if query.from_start and query.offset > size else query.offset


def _read(entry: LogEntry, start: int, limit: int) -> LogChunk:
    descriptor = open_log(entry.path, entry.id)
    try:
        start, data = read_noted(descriptor, start, limit)
    finally:
        os.close(descriptor)
    end = start + len(data)
    return LogChunk(
        data=data,
        offset=start,
        size=max(entry.size, end) if data else entry.size,
        complete=entry.complete and end >= entry.size,
        owner=NO_JOB if entry.complete or entry.job_id is None else entry.job_id,
    )


def _search(entry: LogEntry, search: scan.Search) -> LogFound:
    descriptor = open_log(entry.path, entry.id)
    try:
        found = search_noted(descriptor, entry.size, search, complete=entry.complete)
    finally:
        os.close(descriptor)
    return LogFound(found=found, size=entry.size, complete=entry.complete and found.end >= entry.size)


def open_log(path: Path, log_id: str) -> int:
    """Open a regular file of the directory's owner. Raises Absent, Unavailable.

    Jobs own their log directories, so a job may have replaced its log with a link or a pipe. Such a log is Absent.
    """
    try:
        return open_to_read(path)
    except OSError as error:
        reason = f"log {log_id} cannot be read: {error.strerror}"
        if error.errno in _ABSENT:
            raise Absent(reason) from None
        raise Unavailable(reason, hint="check the disk and the open files of this process") from error


def _info(entry: LogEntry) -> LogInfo:
    return LogInfo(
        name=entry.id,
        size=entry.size,
        mtime=entry.mtime_ms,
        kind=entry.kind.value,
        complete=entry.complete,
        job_id=entry.job_id or "",
        attempt=entry.attempt,
        executor_id=entry.executor_id,
    )

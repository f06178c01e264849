"""Reads parts of this process's logs, and waits for new bytes when a client follows a log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from emberkeep.base.errors import Absent
from emberkeep.base.files.hostile import open_to_read
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.rest.ports import LogCatalogue, LogChunk, LogEntry, LogQuery

POLL_INTERVAL = 0.2  # seconds


class LogReader:
    """Lists and reads the logs of a catalogue. ``close`` ends all waits; ``monotonic`` returns seconds."""

    def __init__(
        self, catalogue: LogCatalogue, monotonic: Callable[[], float], *, poll_interval: float = POLL_INTERVAL
    ) -> None:
        self._catalogue = catalogue
        self._monotonic = monotonic
        self._poll_interval = poll_interval
        self._closing = asyncio.Event()

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
        at 0. Raises Absent if there is no such log, or if it belongs to a job other than ``query.job_id``.
        """
        deadline = self._monotonic() + query.wait
        while True:
            entry = await asyncio.to_thread(self._find, log_id, query.job_id)
            start = _start(query, entry.size)
            if start < entry.size or entry.complete or self._monotonic() >= deadline or self._closing.is_set():
                return await asyncio.to_thread(_read, entry, start, query.limit)
            await self._pause(min(self._poll_interval, deadline - self._monotonic()))

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
    descriptor = _open(entry.path, entry.id)
    try:
        data = os.pread(descriptor, limit, start)
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


def _open(path: Path, log_id: str) -> int:
    """Open a regular file of the directory's owner. Raises Absent.

    Jobs own their log directories, so a job may have replaced its log with a link or a pipe.
    """
    try:
        return open_to_read(path)
    except OSError as error:
        raise Absent(f"log {log_id} cannot be read: {error.strerror}") from None


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

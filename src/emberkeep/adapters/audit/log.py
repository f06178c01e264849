"""The audit log: a bounded queue, and a thread that writes its entries to files.

A request never waits for the log, and is not refused because of it: a full disk must not prevent an operator from
stopping a job. Entries that cannot be written are lost: ``lost`` counts them, and the JobManager logs an error.
As soon as the audit log can be written again, it gets an entry with the number of lost entries.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from emberkeep.adapters.audit.files import AuditFiles
from emberkeep.adapters.logging_setup import redact
from emberkeep.audit.entry import MOST_NUMBER, Entry, Outcome, decode, encode, entry_id, moment_of, shown
from emberkeep.audit.refusals import Refusals
from emberkeep.audit.selection import Page, Selection
from emberkeep.base.clock import since_boot
from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.inert_text import encodable
from emberkeep.base.request_context import Login

MOST_QUEUED: Final = 10_000  # entries
_BATCH: Final = 256  # entries that are written at once
_FLUSH_SECONDS: Final = 1.0  # between two checks whether entries for counted refusals are due
_CLOSE_SECONDS: Final = 5.0  # the longest wait for the queue at the end
_WARN_SECONDS: Final = 60.0
_STEP: Final = 2  # from one id to the next: between them is room for the id of an entry about lost ones
_MOST_SCANNED: Final = 32 * 1024**2  # bytes that one page reads

log = structlog.get_logger(__name__)


class AuditLog:
    """The audit log of a process. ``record`` belongs to the event loop's thread."""

    def __init__(
        self, files: AuditFiles, now_ms: Callable[[], int], monotonic: Callable[[], float] = since_boot
    ) -> None:
        self.files = files  # any thread may read them
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._refusals = Refusals()
        self._queue: queue.Queue[Entry | None] = queue.Queue(MOST_QUEUED)
        self._writer = threading.Thread(target=self._write_all, name="audit-log", daemon=True)
        self._last = (0, 0)  # time and number of the newest entry
        self._overflowed = 0  # entries that found the queue full; only the event loop's thread changes it
        self._unwritten = 0  # entries that could not be written; only the writer changes it
        self._reported = 0  # lost entries that are included in an entry of the log
        self._warned_at: float | None = None
        self._reading = asyncio.Lock()  # one reader at a time: a page may read many megabytes

    def open(self) -> None:
        """Open the files and start to write. Raises Fatal if that is impossible."""
        try:
            self.files.open()
            newest = next(filter(None, map(decode, self.files.lines())), None)
        except OSError as error:
            raise Fatal(
                f"cannot write the audit log {error.filename or ''}: {error.strerror or error}",
                hint="check the free space and the permissions of the JobManager's directory",
            ) from error
        if newest is not None:
            self._last = (moment_of(newest.id), _number(newest.id))
        self._writer.start()

    @property
    def lost(self) -> int:
        """Number of entries that could not be written since the process started."""
        return self._overflowed + self._unwritten

    def record(self, entry: Entry) -> None:
        """Add an entry, without waiting. If there are many refusals, most are only counted."""
        admitted = self._refusals.admit(entry, self._monotonic()) if entry.outcome == Outcome.REFUSED else entry
        if admitted is not None:
            self._enqueue(admitted)

    async def run(self) -> None:
        """Add the summary entries for refusals that were only counted, each when it is due."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            for entry in self._refusals.due(self._monotonic()):
                self._enqueue(entry)

    async def close(self) -> None:
        """Write what is queued, and stop. Waits for _CLOSE_SECONDS at most."""
        for entry in self._refusals.due(self._monotonic(), closing=True):
            self._enqueue(entry)
        await asyncio.to_thread(self._end)

    async def read(self, selection: Selection) -> Page:
        """Return the newest selected entries. Raises Unavailable if the files cannot be read."""
        async with self._reading:
            return await asyncio.to_thread(self._read, selection)

    def _enqueue(self, entry: Entry) -> None:
        try:
            self._queue.put_nowait(self._finished(entry))
        except queue.Full:
            self._overflowed += 1

    def _finished(self, entry: Entry) -> Entry:
        """Return the entry with its id and time, without secrets and control characters."""
        self._last = self._next()
        texts = {name: _clean(getattr(entry, name)) for name in ("identity", "address", "action", "reason")}
        return msgspec.structs.replace(
            entry,
            **texts,
            id=entry_id(*self._last),
            time=_iso(self._now_ms()),
            target={_clean(name): _clean_value(name, value) for name, value in entry.target.items()},
            parameters={_clean(name): _clean_value(name, value) for name, value in entry.parameters.items()},
        )

    def _next(self) -> tuple[int, int]:
        """Return time and number of the next id. Ids never go back, even if the clock does."""
        time_ms, number = self._last
        now_ms = max(self._now_ms(), time_ms)
        if now_ms > time_ms:
            return now_ms, 1
        return (now_ms, number + _STEP) if number + _STEP <= MOST_NUMBER else (now_ms + 1, 1)

    # --- the writer's thread ------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        ended = False
        while not ended:
            batch: list[Entry | None] = [self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            ended = None in batch
            self._write([entry for entry in batch if entry is not None])

    def _write(self, entries: list[Entry]) -> None:
        if not entries:
            return
        lost = self.lost
        if lost > self._reported:
            entries = [self._gap(lost - self._reported, entries[0]), *entries]
        try:
            self.files.append(b"".join(map(encode, entries)))
        except OSError as error:
            self._unwritten += len(entries) - (lost > self._reported)
            self._warn(f"{error.strerror or error}")
        else:
            if lost > self._reported:
                self._reported = lost
                log.warning("audit log is written again, entries are missing", lost=lost)

    def _gap(self, lost: int, following: Entry) -> Entry:
        """Return the entry that stands in for ``lost`` entries before ``following``."""
        return Entry(
            id=entry_id(moment_of(following.id), _number(following.id) - 1),
            time=following.time,
            identity="",
            role="",
            login=Login.NONE,
            address="",
            action="audit log",
            status=0,
            outcome=Outcome.FAILED,
            reason="entries could not be written, see the JobManager's log",
            count=lost,
        )

    def _warn(self, reason: str) -> None:
        now = self._monotonic()
        if self._warned_at is None or now - self._warned_at >= _WARN_SECONDS:
            self._warned_at = now
            log.error("audit log cannot be written, its entries are lost", reason=reason, lost=self.lost)

    def _end(self) -> None:
        deadline = time.monotonic() + _CLOSE_SECONDS
        try:
            self._queue.put(None, timeout=_CLOSE_SECONDS)
        except queue.Full:
            return
        self._writer.join(max(0.0, deadline - time.monotonic()))
        if not self._writer.is_alive():
            self.files.close()

    # --- readers' threads ---------------------------------------------------------------------------------------------

    def _read(self, selection: Selection) -> Page:
        found: list[Entry] = []
        scanned, last = 0, ""
        try:
            for line in self.files.lines(lambda first: _is_newer(first, selection)):
                entry = decode(line)
                if entry is None or (selection.before and entry.id >= selection.before):
                    continue
                if selection.is_older(entry):
                    break
                if len(found) == selection.limit or scanned > _MOST_SCANNED:
                    return Page(entries=tuple(found), next=last)
                if selection.matches(entry):
                    found.append(entry)
                scanned, last = scanned + len(line), entry.id
        except OSError as error:
            raise Unavailable(
                f"the audit log cannot be read now: {error.strerror or error}",
                hint="check the JobManager's disk and the permissions of its directory",
            ) from error
        return Page(entries=tuple(found))


def _is_newer(line: bytes, selection: Selection) -> bool:
    """True if the line's entry, and so every newer one, belongs to an earlier page."""
    entry = decode(line)
    return entry is not None and bool(selection.before) and entry.id >= selection.before


def _number(identifier: str) -> int:
    """Return the number in an id; 0 if the id has none."""
    digits = identifier[14:]
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def _clean(text: str) -> str:
    return shown(encodable(redact(text)))


def _clean_value(name: str, value: str) -> str:
    """Return a value as it may be shown. A name such as ``token`` makes its value a secret."""
    masked = redact(f"{name}={value}")
    return shown(encodable(masked.partition("=")[2]))


def _iso(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Sends the logs of drivers and executors to the JobManager, piece by piece, so that they outlive this node.

No job waits for this: pieces are read and compressed in one thread of the lowest priority, one at a time, at a bounded
rate. What cannot be sent now is sent later; of a log that grows faster than it is sent, the middle is passed over.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput, Unavailable
from emberkeep.base.ids import InstanceId, TaskManagerId
from emberkeep.kept_logs.model import LogPiece, PieceHeader, Position, parse_log_id
from emberkeep.kept_logs.shipping import Cut, Part, cut, moved, next_part
from emberkeep.protocol.messages.logs import KeepLog, LogKept
from emberkeep.protocol.transport import RpcClient
from emberkeep.rest.ports import LogEntry
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs
from emberkeep.rest.serving.log_contents import read_kept
from emberkeep.rest.serving.log_reader import open_log

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0  # between two looks at which processes have ended
_BYTES_PER_SECOND: Final = 4 * 1024**2
_REFUSED_SECONDS: Final = 600.0  # for which nothing is sent to a JobManager that keeps no logs
_LOWEST_PRIORITY: Final = 19

ResultT = TypeVar("ResultT")
Compress = Callable[[bytes], bytes]
Digest = Callable[[bytes], str]


class LeaderLink(Protocol):
    """The task manager's link to the leader. ``epoch``: of the leader that has registered it last."""

    registered: bool
    job_manager: str
    epoch: int


class ShippingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``interval``: seconds between two rounds. ``timeout``: seconds to wait for a reply.

    ``keep``: seconds for which logs are kept; 0: without an end.
    """

    interval: float
    timeout: float
    keep: float


class _Sent(msgspec.Struct):
    """How far a log is stored, as the leader last replied; ``position`` is None before its first reply.

    ``refused``: nothing more of this log is sent to this leader. ``was_whole``: an earlier leader had stored all of it.
    ``failed``: number of the last round that this log has ended; 0 if none has.
    """

    position: Position | None = None
    read_ms: int = 0
    refused: bool = False
    was_whole: bool = False
    failed: int = 0

    def at_next_leader(self) -> _Sent:
        is_whole = self.position is not None and self.position.is_whole
        return _Sent(was_whole=self.was_whole or is_whole)


class _UnreadableError(Exception):
    """A log cannot be read on this node now."""


class LogShipping:
    """Keeps the copies of a task manager's job logs up to date.

    ``live``: names the processes that run now; the end of one begins a round. ``compress`` and ``digest``: how pieces
    are stored.
    """

    def __init__(
        self,
        sender: tuple[TaskManagerId, InstanceId],
        catalogue: TaskManagerLogs,
        rpc: RpcClient,
        link: LeaderLink,
        settings: ShippingSettings,
        clock: Clock,
        *,
        live: Callable[[], frozenset[str]],
        compress: Compress,
        digest: Digest,
    ) -> None:
        self._task_manager, self._instance = sender
        self._catalogue = catalogue
        self._rpc = rpc
        self._link = link
        self._settings = settings
        self._clock = clock
        self._live = live
        self._compress = compress
        self._digest = digest
        self._sent: dict[str, _Sent] = {}
        self._leader = ("", 0)  # its address and epoch
        self._problem = ""
        self._rounds = 0
        self._refused_by, self._refused_until = self._leader, 0.0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "log-shipping", initializer=_give_way)

    async def run(self) -> None:
        """Send what is new, until cancelled: at each interval, and when a process has ended."""
        due, running = 0.0, self._live()
        while True:
            now_running, now = self._live(), self._clock.monotonic()
            ended = bool(running - now_running)
            running = now_running
            may_send = self._link.registered and (now >= self._refused_until or self._refused_by != self._linked())
            if (ended or now >= due) and may_send:
                await self.send_all()
                due = self._clock.monotonic() + self._settings.interval
            await asyncio.sleep(_LOOK_SECONDS)

    def stored(self, entry: LogEntry) -> int:
        """Return up to where a log's file is stored, as far as this knows; its size if no more of it will be sent."""
        sent = self._sent.get(entry.id, _Sent())
        if sent.refused:
            return entry.size
        return 0 if sent.position is None else sent.position.source

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def send_all(self) -> bool:
        """Send what is new of all logs. Return False if there was a problem, which is logged.

        A log that cannot be read here is passed over. A failed request ends the round, because it may say that the
        leader or its storage is away: the next round then begins with the other logs.
        """
        async with self._turn:
            if self._linked() != self._leader:  # another leader replies how far it has stored each log
                self._leader = self._linked()
                self._sent = {log_id: sent.at_next_leader() for log_id, sent in self._sent.items()}
            try:
                unread = await self._round()
            except (InvalidInput, Conflict) as error:
                self._refused_by, self._refused_until = self._leader, self._clock.monotonic() + _REFUSED_SECONDS
                self._say(f"the JobManager takes no logs: {error.message}")
                return False
            except (EmberkeepError, OSError) as error:
                self._say(str(error))
                return False
            if unread:
                self._say(unread)
                return False
            if self._problem:
                log.info("logs of jobs are copied to the shared storage again")
                self._problem = ""
            return True

    def _linked(self) -> tuple[str, int]:
        return self._link.job_manager, self._link.epoch

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("logs of jobs cannot be copied to the shared storage now, trying again", reason=problem)
        self._problem = problem

    async def _round(self) -> str:
        """Return why a log could not be read here, "" if all could. Raises what ends the round, see ``send_all``."""
        found = await self._in_thread(self._catalogue.of_jobs)
        # what else is in the directory of jobs' logs is not sent: it may have any name
        entries = [entry for entry in found.entries if parse_log_id(self._task_manager, entry.id) is not None]
        if found.error is None:  # otherwise a log that is not listed may be there all the same
            listed = {entry.id for entry in entries}
            self._sent = {log_id: sent for log_id, sent in self._sent.items() if log_id in listed}
        oldest_ms = self._clock.now_ms() - int(self._settings.keep * 1000) if self._settings.keep else 0
        self._rounds += 1
        unread = "" if found.error is None else str(found.error)
        for entry in sorted(entries, key=self._turn_of):
            if entry.mtime_ms >= oldest_ms:
                try:
                    await self._send_log(entry)
                except _UnreadableError as error:
                    unread = unread or str(error)
                except (EmberkeepError, OSError):
                    self._sent[entry.id].failed = self._rounds
                    raise
                self._sent[entry.id].failed = 0
        return unread

    def _turn_of(self, entry: LogEntry) -> tuple[int, int]:
        """Order logs: the newest first, which may be read now; after them those that have ended a round, in turn."""
        sent = self._sent.get(entry.id)
        return 0 if sent is None else sent.failed, -entry.mtime_ms

    async def _send_log(self, entry: LogEntry) -> None:
        sent = self._sent.setdefault(entry.id, _Sent())
        size = entry.size
        try:
            while not sent.refused:
                if sent.position is None:
                    sent.position = await self._send(entry, _question(self._clock.now_ms(), self._digest))
                    if sent.was_whole and sent.position == Position():
                        sent.refused = True  # it was dropped to make room, and would take the room of newer logs
                        return
                due = next_part(sent.position, size, has_ended=entry.complete)
                if due is None:
                    return
                now_ms = self._clock.now_ms()
                try:
                    part, data = await self._in_thread(partial(_read, entry, due))
                except (OSError, Unavailable) as error:
                    raise _UnreadableError(str(error)) from error
                # It may have grown since it was listed, and lost its middle. What is stored of it must not be taken for
                # more than there is: that would mean another file, and all of it would be stored again, without end.
                size = max(size, part.source + len(data))
                piece = cut(part, data, size, has_ended=entry.complete)
                if piece is None:
                    return
                packed = await self._in_thread(lambda: self._packed(piece, sent.read_ms, now_ms))  # noqa: B023
                before, sent.position = sent.position, await self._send(entry, packed)
                sent.read_ms = now_ms
                if sent.position == before:
                    return  # the leader did not need this piece: never send it twice in one round
                await asyncio.sleep(len(data) / _BYTES_PER_SECOND)
        except Absent:
            sent.refused = True  # the job is no longer known, or the log was removed

    def _packed(self, piece: Cut, since_ms: int, now_ms: int) -> LogPiece:
        header = PieceHeader(
            offset=piece.offset,
            size=len(piece.data),
            source=piece.source,
            since_ms=since_ms or now_ms,
            until_ms=now_ms,
            digest=self._digest(piece.data),
            is_last=piece.is_last,
        )
        return LogPiece(header=header, data=self._compress(piece.data) if piece.data else b"")

    async def _send(self, entry: LogEntry, piece: LogPiece) -> Position:
        if entry.job_id is None:
            raise Absent(f"log {entry.id} belongs to no job")
        request = KeepLog(
            task_manager=self._task_manager,
            instance=self._instance,
            job_id=entry.job_id,
            attempt=entry.attempt,
            name=entry.path.name,
            piece=piece,
        )
        kept = await self._rpc.call(self._leader[0], request, LogKept, timeout=self._settings.timeout)
        return kept.position

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _question(now_ms: int, digest: Digest) -> LogPiece:
    """Return a piece without bytes, which asks how far a log is stored."""
    header = PieceHeader(offset=0, size=0, source=0, since_ms=now_ms, until_ms=now_ms, digest=digest(b""))
    return LogPiece(header=header, data=b"")


def _read(entry: LogEntry, part: Part) -> tuple[Part, bytes]:
    """Return a part of a log file, which begins later if its first bytes were freed.

    Raises Absent, Unavailable, OSError.
    """
    descriptor = open_log(entry.path, entry.id)
    try:
        start, data = read_kept(descriptor, part.source, part.count) if part.count else (part.source, b"")
    finally:
        os.close(descriptor)
    return moved(part, start), data


def _give_way() -> None:
    """Let this thread use a processor only while hardly anything else needs one."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)

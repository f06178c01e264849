"""A task manager's logs for the JobManager: lists and searches them, uploads pieces as transient BLOBs (BLOB-20)."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.blobs.model import NO_JOB, BlobKey
from emberkeep.protocol.messages.logs import (
    ListLogs,
    LogSearched,
    LogsListed,
    LogUploaded,
    LogView,
    SearchLog,
    UploadLog,
)
from emberkeep.protocol.messages.root import Message
from emberkeep.rest.logs.response import MAX_LIMIT, MAX_WAIT
from emberkeep.rest.ports import LogChunk, LogQuery, LogSearch
from emberkeep.rest.serving.log_ids import parse_log_id
from emberkeep.rest.serving.log_reader import LogReader

SERVED_SECONDS: Final = 120.0  # seconds after an upload; by then its reader has read the piece or no longer waits

_HOLDER_CHARACTERS: Final = 200
_MAX_LOGS: Final = 1000  # logs whose last pieces are remembered
_NOT_IN_A_HOLDER: Final = re.compile(r"[^A-Za-z0-9._~:-]")

log = structlog.get_logger(__name__)


class LogBlobs(Protocol):
    """Stores transient BLOBs at the BLOB server (``HttpBlobUploads``)."""

    async def put_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        """Store ``data`` with these holders. Raises RetryLater, Conflict (the job has ended), InvalidInput, Fatal."""

    async def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        """Release one holder's reference. Raises RetryLater, Fatal."""


@dataclass(frozen=True)
class _Piece:
    """A piece that was uploaded for one reader."""

    uploaded: float  # monotonic clock, seconds
    owner: JobId
    key: BlobKey
    holder: str


class LogUploads:
    """RpcService for ListLogs, SearchLog and UploadLog.

    Each reader gets a reference of its own and releases it, so readers of one log do not disturb each other. This class
    releases references that their readers have not released: at the first request for the same log after
    SERVED_SECONDS, or once pieces of _MAX_LOGS other logs were uploaded.
    """

    def __init__(
        self, task_manager: TaskManagerId, instance: InstanceId, reader: LogReader, blobs: LogBlobs, clock: Clock
    ) -> None:
        self._task_manager = task_manager
        self._instance = instance
        self._reader = reader
        self._blobs = blobs
        self._clock = clock
        self._numbers = itertools.count(1)
        self._pieces: dict[str, deque[_Piece]] = {}

    async def serve(self, request: Message) -> Message:
        """See RpcService."""
        if isinstance(request, ListLogs):
            entries = await self._reader.entries(request.job_id)
            return LogsListed(logs=tuple(msgspec.convert(entry, LogView, from_attributes=True) for entry in entries))
        if isinstance(request, UploadLog):
            return await self._upload(request)
        if isinstance(request, SearchLog):
            return await self._search(request)
        raise InvalidInput(f"a log service does not serve {type(request).__name__}")

    async def _search(self, request: SearchLog) -> LogSearched:
        log_id = parse_log_id(request.log_id)
        if not request.search.is_bounded or not 0 <= request.wait <= MAX_WAIT:
            raise InvalidInput(f"a search needs bounds within those of one step, and a wait of 0 to {MAX_WAIT} s")
        wanted = LogSearch(search=request.search, wait=request.wait, job_id=request.job_id)
        searched = await self._reader.search(log_id, wanted)
        return LogSearched(found=searched.found, size=searched.size, complete=searched.complete)

    async def _upload(self, request: UploadLog) -> LogUploaded:
        log_id = parse_log_id(request.log_id)
        if not 0 < request.limit <= MAX_LIMIT or not 0 <= request.wait <= MAX_WAIT:
            raise InvalidInput(
                f"a request for a log must have a limit of 1 to {MAX_LIMIT} bytes and a wait of 0 to {MAX_WAIT} s"
            )
        chunk = await self._reader.read(
            log_id,
            LogQuery(
                offset=request.offset,
                limit=request.limit,
                wait=request.wait,
                job_id=request.job_id,
                from_start=request.from_start,
            ),
        )
        await self._release_previous(log_id)
        if not chunk.data:
            return _answer(chunk)
        piece = await self._store(log_id, chunk)
        self._pieces.setdefault(log_id, deque()).append(piece)
        if len(self._pieces) > _MAX_LOGS:
            for forgotten in self._pieces.pop(next(iter(self._pieces))):
                await self._release(log_id, forgotten)
        return _answer(chunk, piece)

    async def _store(self, log_id: str, chunk: LogChunk) -> _Piece:
        """Upload a piece. NO_JOB owns it if the job has just ended, so that its logs can still be read."""
        holder = _holder(self._task_manager, log_id, f"{self._instance[:8]}-{next(self._numbers)}")
        owner = chunk.owner
        try:
            key = await self._blobs.put_bytes(owner, chunk.data, [holder])
        except Conflict:
            owner = NO_JOB
            key = await self._blobs.put_bytes(owner, chunk.data, [holder])
        return _Piece(self._clock.monotonic(), owner, key, holder)

    async def _release_previous(self, log_id: str) -> None:
        pieces = self._pieces.get(log_id)
        while pieces and pieces[0].uploaded + SERVED_SECONDS <= self._clock.monotonic():
            await self._release(log_id, pieces.popleft())
        if pieces is not None and not pieces:
            self._pieces.pop(log_id, None)

    async def _release(self, log_id: str, piece: _Piece) -> None:
        try:
            await self._blobs.release(piece.owner, piece.key, piece.holder)
        except EmberkeepError as error:
            log.info("cannot release a part of a log", log=log_id, reason=str(error))


def _holder(task_manager: TaskManagerId, log_id: str, reader: str) -> str:
    name = _NOT_IN_A_HOLDER.sub("-", f"log-{task_manager}-{log_id}")
    return f"{name[: _HOLDER_CHARACTERS - len(reader) - 1]}-{reader}"


def _answer(chunk: LogChunk, piece: _Piece | None = None) -> LogUploaded:
    return LogUploaded(
        offset=chunk.offset,
        size=chunk.size,
        complete=chunk.complete,
        owner=chunk.owner if piece is None else piece.owner,
        key="" if piece is None else str(piece.key),
        holder="" if piece is None else piece.holder,
    )

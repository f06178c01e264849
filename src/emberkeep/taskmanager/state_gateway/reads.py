"""Reads a state file: from the local copy while its blocks verify, else from the durable store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import structlog

from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput, RetryLater, Unavailable
from emberkeep.local_state.errors import DamagedCopy, IsADirectory
from emberkeep.local_state.file_names import is_unique
from emberkeep.local_state.gateway_ports import OpenedFile
from emberkeep.local_state.model import Caller, CopyRecord, FileKind, FileStatus, StatePath
from emberkeep.local_state.ports import DurableState, StagedCopy
from emberkeep.taskmanager.state_gateway.counters import StateCounters
from emberkeep.taskmanager.state_gateway.disk import LocalDisk
from emberkeep.taskmanager.state_gateway.early_answers import EarlyAnswers
from emberkeep.taskmanager.state_gateway.side_calls import SideCalls

log = structlog.get_logger(__name__)


class GatewayReads:
    """The reads of one gateway. Any thread may call it.

    A unique name (``is_unique``) is never written twice, so its local copy cannot be stale.
    """

    def __init__(
        self,
        disk: LocalDisk,
        counters: StateCounters,
        is_kept: Callable[[Caller], bool],
        early: EarlyAnswers,
        side_calls: SideCalls,
    ) -> None:
        """``is_kept``: returns True if the caller's allocation keeps local copies."""
        self._early = early
        self._side_calls = side_calls
        self._is_kept = is_kept
        self._disk = disk
        self._counters = counters

    def status(self, caller: Caller, path: StatePath, durable: DurableState) -> FileStatus:
        """Return the durable file's status. Raises Absent.

        For a unique name with a local copy, the status comes from the copy's record without a request: Spark's client
        asks for the status of each file before it opens the file.
        """
        record = self._copy(caller, path) if is_unique(path.name) else None
        if record is not None and record.modified_ms:
            return FileStatus(
                name=path.name,
                kind=FileKind.FILE,
                length=record.length,
                modified_ms=record.modified_ms,
                generation=record.generation,
            )
        known = self._early.directory(caller, path)
        if known is not None:
            return known
        if self._early.opens_store(caller, path):  # its listing is next
            self._early.expect_listing(caller, path, self._side_calls.begin(partial(durable.listing, path.name)))
        status = durable.status(path.name)
        self._early.note(caller, path, status)
        return status

    def listing(self, caller: Caller, path: StatePath, durable: DurableState) -> tuple[FileStatus, ...]:
        """Return the entries of the durable directory. Raises Absent."""
        early = self._early.listing(caller, path)
        entries = durable.listing(path.name) if early is None else early
        self._early.note_entries(caller, path, entries)
        return entries

    def look_for(self, caller: Caller, path: StatePath, durable: DurableState) -> str:
        """See StateFiles. Raises Absent, IsADirectory."""
        if is_unique(path.name) and self._copy(caller, path) is not None:
            return ""
        status = self._early.listed(caller, path) or durable.status(path.name)
        if status.kind is not FileKind.FILE:
            raise IsADirectory(f"{path.name} is a directory")
        return status.generation

    def open_file(
        self,
        caller: Caller,
        path: StatePath,
        durable: DurableState,
        offset: int,
        length: int | None,
        *,
        seen: str,
    ) -> OpenedFile:
        """See StateFiles, whose parameters these are, with the opened ``durable`` store."""
        record = self._current(caller, path, durable, seen)
        if record is not None:
            wanted = _wanted(path, record.length, offset, length)
            self._counters.add("hits")
            self._disk.copies.touch(record)
            return OpenedFile(wanted, self._local(record, durable, offset, wanted))
        status, pieces = self._remote(path, durable, offset, length)
        wanted = _wanted(path, status.length, offset, length)
        self._counters.add("misses")
        staged = self._disk.stage() if wanted == status.length and self._is_kept(caller) else None
        if staged is None:
            return OpenedFile(wanted, self._counted(pieces))
        return OpenedFile(wanted, self._filling(self._counted(pieces), staged, status, path, caller))

    def _copy(self, caller: Caller, path: StatePath) -> CopyRecord | None:
        """Return the record of the local copy of ``path`` that the caller's job has made.

        The copy of another job is not for this caller, whose user may have no right to read the durable file.
        """
        record = self._disk.copies.find(path)
        return record if record is not None and record.job_id == caller.job_id else None

    def _current(self, caller: Caller, path: StatePath, durable: DurableState, seen: str) -> CopyRecord | None:
        """Return the record of a local copy that equals the durable file, or None.

        A unique name needs no request, because it is never written twice. Any other name costs one request, to compare
        the generations, unless ``look_for`` has just made it: then ``seen`` is the copy's generation. Raises Absent.
        """
        record = self._copy(caller, path)
        if record is None or is_unique(path.name) or (seen and seen == record.generation):
            return record
        try:
            status = durable.status(path.name)
        except Absent:
            self._disk.drop_records([record])
            raise
        if status.generation == record.generation and status.length == record.length:
            return record
        self._counters.add("stale")
        self._disk.drop_records([record])
        return None

    def _remote(
        self, path: StatePath, durable: DurableState, offset: int, length: int | None
    ) -> tuple[FileStatus, Iterator[bytes]]:
        status, pieces = durable.read(path.name, offset, length)
        if status.kind is not FileKind.FILE:
            raise IsADirectory(f"{path.name} is a directory")
        return status, pieces

    def _local(self, record: CopyRecord, durable: DurableState, offset: int, length: int) -> Iterator[bytes]:
        """Yield the local copy's bytes; from the first block that does not verify on, yield the durable store's."""
        sent = 0
        try:
            for piece in self._disk.copies.read(record, offset, length):
                yield piece
                sent += len(piece)
        except (Absent, DamagedCopy) as error:
            if isinstance(error, DamagedCopy):
                self._counters.add("verify_failures")
                log.warning(
                    "a local copy is damaged; reading the durable file", file=record.path.name, reason=str(error)
                )
            self._disk.drop_records([record])
        except Unavailable as error:
            self._counters.add("disk_failures")
            log.warning("cannot read a local copy now; reading the durable file", reason=str(error))
        finally:
            self._counters.add("local_read_bytes", sent)
        if sent < length:
            yield from self._rest(record, durable, offset + sent, length - sent)

    def _rest(self, record: CopyRecord, durable: DurableState, offset: int, length: int) -> Iterator[bytes]:
        status, pieces = durable.read(record.path.name, offset, length)
        if (
            status.generation != record.generation and not is_unique(record.path.name)
        ) or status.length != record.length:
            raise RetryLater(f"{record.path.name} was replaced while it was read", hint="open the file again")
        yield from self._counted(pieces)

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._counters.add("remote_read_bytes", len(piece))
            yield piece

    def _filling(
        self, pieces: Iterator[bytes], staged: StagedCopy, status: FileStatus, path: StatePath, caller: Caller
    ) -> Iterator[bytes]:
        """Yield the durable store's bytes, and keep them as the local copy if all of them were read."""
        sound = True
        received = 0
        try:
            for piece in pieces:
                if sound:
                    try:
                        staged.write(piece)
                    except EmberkeepError as error:
                        sound = False
                        self._disk.failed("fill", error)
                yield piece
                received += len(piece)
            if sound and received == status.length:
                self._fill(staged, status, path, caller)
        finally:
            staged.discard()

    def _fill(self, staged: StagedCopy, status: FileStatus, path: StatePath, caller: Caller) -> None:
        try:
            staged.finish()
        except EmberkeepError as error:
            self._disk.failed("fill", error)
            return
        self._disk.keep(staged, path, caller, status)


def _wanted(path: StatePath, size: int, offset: int, length: int | None) -> int:
    """Return the number of bytes from ``offset`` on, at most ``length``. Raises InvalidInput beyond the end."""
    if offset > size:
        raise InvalidInput(f"{path.name} has {size} bytes: offset {offset} is beyond its end", field="offset")
    return size - offset if length is None else min(length, size - offset)

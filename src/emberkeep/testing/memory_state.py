"""Local copies in memory, and a durable store whose answers a test decides about."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import google_crc32c
import msgspec

from emberkeep.base.errors import Absent, EmberkeepError, Fatal
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.errors import DamagedCopy
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import CopyRecord, FileStatus, Holding, StatePath
from emberkeep.local_state.ports import DurableState

ResultT = TypeVar("ResultT")
BLOCK_BYTES = 4096
_PARTITION = re.compile(r"(state/\d+/\d+(?:/[^/]+)?)/[^/]*?(\d+)[^/]*")


class MemoryCopies:
    """Implements ``local_state.ports.LocalCopies`` with dictionaries: for one process, without a disk to fail, unless
    ``problem`` is set, which every write raises then."""

    def __init__(self) -> None:
        self.problem: EmberkeepError | None = None
        self.fail_after = 0  # bytes of a file that are taken before ``problem`` is raised
        self._lock = threading.RLock()
        self._copies: dict[StatePath, tuple[CopyRecord, bytes]] = {}  # least recently used first

    def open_copies(self) -> tuple[CopyRecord, ...]:
        return self.records()

    def stage(self) -> MemoryStaged:
        if self.problem is not None and not self.fail_after:
            raise self.problem
        return MemoryStaged(self)

    def put(self, record: CopyRecord, data: bytes) -> None:
        with self._lock:
            self._copies.pop(record.path, None)
            self._copies[record.path] = (record, data)

    def find(self, path: StatePath) -> CopyRecord | None:
        with self._lock:
            return self._copies[path][0] if path in self._copies else None

    def damage(self, path: StatePath, change: Callable[[bytes], bytes]) -> None:
        """Let the copy's bytes be others than its record says."""
        with self._lock:
            record, data = self._copies[path]
            self._copies[path] = (record, change(data))

    def read(self, record: CopyRecord, offset: int, length: int | None) -> Iterator[bytes]:
        with self._lock:
            if self.find(record.path) != record:
                raise Absent(f"{record.path.name} is not kept")
            data = self._copies[record.path][1]
        return self._verified(record, data, offset, record.length if length is None else offset + length)

    def _verified(self, record: CopyRecord, data: bytes, offset: int, end: int) -> Iterator[bytes]:
        for number, checksum in enumerate(record.checksums):
            start = number * BLOCK_BYTES
            block = data[start : start + BLOCK_BYTES]
            piece = block[max(0, offset - start) : max(0, end - start)]
            if not piece and start < end and start + BLOCK_BYTES > offset and start < record.length:
                block = b""  # cut short
            elif not piece:
                continue
            if google_crc32c.value(block) != checksum:
                self.drop(record.path)
                raise DamagedCopy(f"block {number} of {record.path.name} is damaged")
            yield piece

    def move(self, record: CopyRecord, path: StatePath, generation: str) -> None:
        with self._lock:
            if self.find(record.path) != record:
                return
            _, data = self._copies.pop(record.path)
            self.put(msgspec.structs.replace(record, path=path, generation=generation), data)

    def touch(self, record: CopyRecord) -> None:
        with self._lock:
            if record.path in self._copies:
                self._copies[record.path] = self._copies.pop(record.path)

    def hand_over(self, job_id: JobId, source: AllocationId, target: AllocationId) -> None:
        with self._lock:
            for record, data in list(self._copies.values()):
                if (record.job_id, record.allocation_id) == (job_id, source):
                    self._copies[record.path] = (msgspec.structs.replace(record, allocation_id=target), data)

    def drop(self, path: StatePath) -> None:
        below = path.name + "/" if path.name else ""
        self._drop(lambda r: r.path.root == path.root and (r.path == path or r.path.name.startswith(below)))

    def drop_allocation(self, job_id: JobId, allocation_id: AllocationId) -> None:
        self._drop(lambda record: (record.job_id, record.allocation_id) == (job_id, allocation_id))

    def drop_job(self, job_id: JobId) -> None:
        self._drop(lambda record: record.job_id == job_id)

    def _drop(self, wanted: Callable[[CopyRecord], bool]) -> None:
        with self._lock:
            for record, _ in list(self._copies.values()):
                if wanted(record):
                    del self._copies[record.path]

    def records(self) -> tuple[CopyRecord, ...]:
        with self._lock:
            return tuple(record for record, _ in self._copies.values())

    def holdings(self, job_id: JobId) -> tuple[Holding, ...]:
        found: dict[tuple[str, str], Holding] = {}
        for record in self.records():
            match = _PARTITION.search(record.path.name)
            if record.job_id != job_id or match is None:
                continue
            key = (record.path.root, record.path.name[: match.end(1)])
            before = found.get(key) or Holding(
                job_id=job_id, root=key[0], name=key[1], files=0, size=0, newest_version=0
            )
            found[key] = msgspec.structs.replace(
                before,
                files=before.files + 1,
                size=before.size + record.length,
                newest_version=max(before.newest_version, int(match.group(2))),
            )
        return tuple(found.values())

    def used(self) -> int:
        return sum(record.length for record in self.records())

    def close(self) -> None:
        """Nothing to close."""


class MemoryStaged:
    """Implements ``local_state.ports.StagedCopy``; the durable store reads it from a temporary file."""

    def __init__(self, copies: MemoryCopies) -> None:
        self._copies = copies
        self._data = bytearray()
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed by ``discard``

    @property
    def path(self) -> Path:
        return Path(self._file.name)

    def write(self, data: bytes) -> None:
        if self._copies.problem is not None and len(self._data) + len(data) > self._copies.fail_after:
            raise self._copies.problem
        self._data += data
        self._file.write(data)

    def finish(self) -> int:
        self._file.flush()
        return len(self._data)

    def keep(self, path: StatePath, job_id: JobId, attempt: int, allocation_id: AllocationId, generation: str) -> None:
        if self._copies.problem is not None:
            raise self._copies.problem
        data = bytes(self._data)
        blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
        record = CopyRecord(
            path=path,
            job_id=job_id,
            allocation_id=allocation_id,
            attempt=attempt,
            length=len(data),
            generation=generation,
            block_size=BLOCK_BYTES,
            checksums=tuple(google_crc32c.value(block) for block in blocks),
        )
        self._copies.put(record, data)

    def discard(self) -> None:
        self._file.close()


class FaultyState:
    """A durable store in front of another one: it counts the calls, and fails those that it is told to fail."""

    def __init__(self, store: DurableState) -> None:
        self.store = store
        self.calls: list[str] = []  # "method name"
        self.before: Callable[[str], None] = lambda _: None  # told the name of each method that is about to run
        self._failures: dict[str, list[tuple[EmberkeepError, bool]]] = {}

    def fail(self, method: str, error: EmberkeepError, *, applied: bool = False, times: int = 1) -> None:
        """Let the next calls of ``method`` raise ``error``, after they were carried out if ``applied``."""
        self._failures.setdefault(method, []).extend([(error, applied)] * times)

    @property
    def location(self) -> str:
        return self.store.location

    def status(self, name: str) -> FileStatus:
        return self._call("status", name, lambda: self.store.status(name))

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        return self._call("listing", name, lambda: self.store.listing(name))

    def make_directory(self, name: str) -> None:
        self._call("make_directory", name, lambda: self.store.make_directory(name))

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        return self._call("create", name, lambda: self.store.create(name, source, overwrite=overwrite))

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        return self._call("read", name, lambda: self.store.read(name, offset, length))

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        return self._call("rename", source, lambda: self.store.rename(source, target, overwrite=overwrite))

    def delete(self, name: str, *, recursive: bool) -> bool:
        return self._call("delete", name, lambda: self.store.delete(name, recursive=recursive))

    def close(self) -> None:
        self.store.close()

    def _call(self, method: str, name: str, work: Callable[[], ResultT]) -> ResultT:
        self.calls.append(f"{method} {name}")
        self.before(method)
        failures = self._failures.get(method)
        error, applied = failures.pop(0) if failures else (None, False)
        if error is not None and not applied:
            raise error
        result = work()
        if error is not None:
            raise error
        return result


class MemorySpool:
    """Implements ``local_state.gateway_ports.Spool`` with a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed by ``discard``

    @property
    def path(self) -> Path:
        return Path(self._file.name)

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def finish(self) -> int:
        self._file.flush()
        return self._file.tell()

    def discard(self) -> None:
        self._file.close()


class MemoryJournal:
    """Implements ``local_state.gateway_ports.RenameJournal``; a test may hand it to the next life of a gateway."""

    def __init__(self) -> None:
        self.begun: set[Rename] = set()

    def begin(self, rename: Rename) -> None:
        self.begun.add(rename)

    def void(self, rename: Rename) -> None:
        self.begun.discard(rename)

    def knows(self, rename: Rename) -> bool:
        return rename in self.begun


def disk_full() -> Fatal:
    """What a full disk says."""
    return Fatal("cannot write: no space left on device")

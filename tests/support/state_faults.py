"""A node's disk and a durable store that fail on a test's request, and other ports of a gateway without files that
outlive the gateway."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import FileStatus, StatePath
from emberkeep.local_state.ports import DurableState, StagedCopy
from tests.support.copy_files import copy_file, flip

ResultT = TypeVar("ResultT")


class FaultyCopies(DiskCopies):
    """Copies on a disk that refuses writes while ``problem`` is set."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.problem: EmberkeepError | None = None
        self.fail_after = 0  # bytes of a file that are written before ``problem`` is raised
        self._root = root

    def stage(self) -> StagedCopy:  # type: ignore[override] # a wrapper, which the port allows
        if self.problem is not None and not self.fail_after:
            raise self.problem
        return FaultyStaged(self, super().stage())

    def flip(self, path: StatePath, offset: int) -> None:
        """Change a bit of a copy's bytes."""
        flip(self._file(path), offset)

    def cut(self, path: StatePath, length: int) -> None:
        """Truncate a copy's file to ``length`` bytes."""
        os.truncate(self._file(path), length)

    def _file(self, path: StatePath) -> Path:
        record = self.find(path)
        assert record is not None, f"{path.name} has no copy"
        return copy_file(self._root, record)


class FaultyStaged:
    """A staged copy of FaultyCopies."""

    def __init__(self, copies: FaultyCopies, staged: StagedCopy) -> None:
        self._copies = copies
        self._staged = staged
        self._written = 0

    @property
    def path(self) -> Path:
        return self._staged.path

    def write(self, data: bytes) -> None:
        self._written += len(data)
        if self._copies.problem is not None and self._written > self._copies.fail_after:
            raise self._copies.problem
        self._staged.write(data)

    def finish(self) -> int:
        return self._staged.finish()

    def keep(
        self,
        path: StatePath,
        job_id: JobId,
        attempt: int,
        allocation_id: AllocationId,
        generation: str,
        *,
        modified_ms: int = 0,
    ) -> None:
        if self._copies.problem is not None:
            raise self._copies.problem
        self._staged.keep(path, job_id, attempt, allocation_id, generation, modified_ms=modified_ms)

    def discard(self) -> None:
        self._staged.discard()


class FaultyState:
    """A wrapper of a durable store that records all calls and fails those chosen with ``fail``."""

    def __init__(self, store: DurableState) -> None:
        self.store = store
        self.calls: list[str] = []  # "method name"
        self.before: Callable[[str], None] = lambda _: None  # called with the method's name before each call
        self._failures: dict[str, list[tuple[EmberkeepError, bool]]] = {}

    def fail(self, method: str, error: EmberkeepError, *, applied: bool = False, times: int = 1) -> None:
        """Let the next calls of ``method`` raise ``error``; if ``applied``, only after they took effect."""
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


class TemporarySpool:
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
    """Implements ``local_state.gateway_ports.RenameJournal``; a test may pass it to the next process of a gateway."""

    def __init__(self) -> None:
        self.begun: set[Rename] = set()

    def begin(self, rename: Rename) -> bool:
        self.begun.add(rename)
        return True

    def void(self, rename: Rename) -> bool:
        self.begun.discard(rename)
        return True

    def knows(self, rename: Rename) -> bool:
        return rename in self.begun


def disk_full() -> Fatal:
    """Return the error of a full disk."""
    return Fatal("cannot write: no space left on device")

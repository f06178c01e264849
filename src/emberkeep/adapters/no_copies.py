"""Local copies for a gateway that keeps none: what is staged goes to the durable store, and is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from emberkeep.adapters.gateway_spool import FileSpool
from emberkeep.base.errors import Absent
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, Holding, StatePath


class _Passing:
    """Implements ``local_state.ports.StagedCopy``."""

    def __init__(self) -> None:
        self._spool = FileSpool()

    @property
    def path(self) -> Path:
        return self._spool.path

    def write(self, data: bytes) -> None:
        self._spool.write(data)

    def finish(self) -> int:
        return self._spool.finish()

    def keep(self, path: StatePath, job_id: JobId, attempt: int, allocation_id: AllocationId, generation: str) -> None:
        del path, job_id, attempt, allocation_id, generation
        self.discard()

    def discard(self) -> None:
        self._spool.discard()


class NoCopies:
    """Implements ``local_state.ports.LocalCopies``."""

    def open_copies(self) -> tuple[CopyRecord, ...]:
        return ()

    def stage(self) -> _Passing:
        return _Passing()

    def find(self, path: StatePath) -> CopyRecord | None:
        del path
        return None

    def read(self, record: CopyRecord, offset: int, length: int | None) -> Iterator[bytes]:
        del offset, length
        raise Absent(f"no copies are kept here: {record.path.name}")

    def move(self, record: CopyRecord, path: StatePath, generation: str) -> None:
        del record, path, generation

    def touch(self, record: CopyRecord) -> None:
        del record

    def hand_over(self, job_id: JobId, source: AllocationId, target: AllocationId) -> None:
        del job_id, source, target

    def drop(self, path: StatePath) -> None:
        del path

    def drop_allocation(self, job_id: JobId, allocation_id: AllocationId) -> None:
        del job_id, allocation_id

    def drop_job(self, job_id: JobId) -> None:
        del job_id

    def records(self) -> tuple[CopyRecord, ...]:
        return ()

    def holdings(self, job_id: JobId) -> tuple[Holding, ...]:
        del job_id
        return ()

    def used(self) -> int:
        return 0

    def close(self) -> None:
        pass

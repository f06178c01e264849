"""Local copies for a gateway that keeps no copies."""

from __future__ import annotations

from collections.abc import Iterator

from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, Holding, StatePath
from emberkeep.local_state.ports import StagedCopy


class NoCopies:
    """No local copies: has none and accepts none. Implements ``local_state.ports.LocalCopies``."""

    def open_copies(self) -> tuple[CopyRecord, ...]:
        return ()

    def stage(self) -> StagedCopy:
        raise Fatal("no copies are kept here")

    def find(self, path: StatePath) -> CopyRecord | None:
        del path
        return None

    def read(self, record: CopyRecord, offset: int, length: int | None) -> Iterator[bytes]:
        del offset, length
        raise Absent(f"no copies are kept here: {record.path.name}")

    def move(self, record: CopyRecord, path: StatePath, generation: str, *, modified_ms: int = 0) -> None:
        del record, path, generation, modified_ms

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

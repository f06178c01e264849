"""What a local copy takes on the disk."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, StatePath, disk_bytes

RECORD = CopyRecord(
    path=StatePath(root="/r", name="state"),
    job_id=JobId("1" * 32),
    allocation_id=AllocationId("2" * 32),
    attempt=1,
    length=0,
    generation="g",
    block_size=1,
    checksums=(),
)


@pytest.mark.parametrize(("length", "taken"), [(0, 4096), (3584, 4096), (3585, 8192)])
def test_a_copy_and_its_record_take_whole_blocks(length: int, taken: int) -> None:
    assert disk_bytes(msgspec.structs.replace(RECORD, length=length)) == taken

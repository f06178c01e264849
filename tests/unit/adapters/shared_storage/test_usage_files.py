"""The files in which leaders store the usage of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.shared_storage.usage_files import UsageFiles
from emberkeep.base.errors import EmberkeepError, Unavailable
from emberkeep.base.files.durable import encode_record
from emberkeep.usage.encoding import KIND, VERSION
from emberkeep.usage.histories import KeptHistories
from tests.support.crashes.observed import observed
from tests.support.crashes.recorded import Loss, RecordedFiles
from tests.unit.usage.test_kept import histories

LINEAGE = "store-1"


def usage(count: int) -> KeptHistories:
    return histories(count, "tm-1").kept()


@pytest.fixture
def files(tmp_path: Path) -> UsageFiles:
    (tmp_path / LINEAGE).mkdir()
    return UsageFiles(tmp_path, lambda: None)


async def test_the_next_leader_finds_what_the_newest_one_has_written(files: UsageFiles, tmp_path: Path) -> None:
    assert await files.earlier(LINEAGE, 1) is None
    await files.keep(LINEAGE, 1, usage(1))
    await files.keep(LINEAGE, 1, usage(2))
    assert await files.earlier(LINEAGE, 2) == usage(2)
    await files.keep(LINEAGE, 2, usage(3))
    assert await files.earlier(LINEAGE, 3) == usage(3)
    assert [path.name for path in (tmp_path / LINEAGE / "nodes").iterdir()] == [f"{2:015d}.record"]


async def test_what_was_kept_first_survives_a_power_failure(tmp_path: Path) -> None:
    (tmp_path / "disk" / LINEAGE).mkdir(parents=True)
    disk = RecordedFiles(tmp_path / "disk", remembers=False)
    with observed(disk):
        await UsageFiles(tmp_path / "disk", lambda: None).keep(LINEAGE, 1, usage(1))
    disk.build(tmp_path / "found", Loss.LOST)
    assert await UsageFiles(tmp_path / "found", lambda: None).earlier(LINEAGE, 2) == usage(1)


async def test_a_deposed_leader_that_still_writes_harms_nothing(files: UsageFiles) -> None:
    await files.keep(LINEAGE, 2, usage(2))
    await files.keep(LINEAGE, 1, usage(1))
    assert await files.earlier(LINEAGE, 3) == usage(2)


async def test_a_damaged_file_is_passed_over(files: UsageFiles, tmp_path: Path) -> None:
    await files.keep(LINEAGE, 2, usage(2))
    await files.keep(LINEAGE, 1, usage(1))
    (tmp_path / LINEAGE / "nodes" / f"{2:015d}.record").write_bytes(b"damaged")
    assert await files.earlier(LINEAGE, 3) == usage(1)
    await files.keep(LINEAGE, 3, usage(3))
    assert [path.name for path in (tmp_path / LINEAGE / "nodes").iterdir()] == [f"{3:015d}.record"]


@pytest.mark.req("SAFE-14")
async def test_what_a_later_release_has_kept_is_left_to_it(files: UsageFiles, tmp_path: Path) -> None:
    await files.keep(LINEAGE, 1, usage(1))
    later = tmp_path / LINEAGE / "nodes" / f"{1:015d}.record"
    readable = later.read_bytes()
    later.write_bytes(encode_record(KIND, VERSION + 1, b"{}"))
    for epoch in (2, 3):  # leaders of this release, one after the other
        files = UsageFiles(tmp_path, lambda: None)
        assert await files.earlier(LINEAGE, epoch) == (None if epoch == 2 else usage(2))
        await files.keep(LINEAGE, epoch, usage(epoch))
    assert sorted(path.name for path in later.parent.iterdir()) == [later.name, f"{3:015d}.record"]
    later.write_bytes(readable)  # what the later release makes of it
    upgraded = UsageFiles(tmp_path, lambda: None)
    assert await upgraded.earlier(LINEAGE, 4) == usage(3)
    await upgraded.keep(LINEAGE, 4, usage(4))
    assert [path.name for path in later.parent.iterdir()] == [f"{4:015d}.record"]


async def test_nothing_is_written_where_the_storage_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / LINEAGE).mkdir()
    problem: list[EmberkeepError] = [Unavailable("not mounted")]
    files = UsageFiles(tmp_path, lambda: problem[0])
    with pytest.raises(Unavailable, match="not mounted"):
        await files.keep(LINEAGE, 1, usage(1))
    with pytest.raises(Unavailable, match="not mounted"):
        await files.earlier(LINEAGE, 1)
    assert list((tmp_path / LINEAGE).iterdir()) == []

"""The files in which leaders keep what waits for the webhook."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.shared_storage.notice_files import NoticeFiles
from emberkeep.base.errors import Unavailable
from emberkeep.base.files.durable import encode_record
from emberkeep.notifications.encoding import KIND, VERSION, decode_waiting
from emberkeep.notifications.model import encode
from tests.unit.adapters.webhooks.receiver import notification

LINEAGE = "store-1"


@pytest.fixture
def files(tmp_path: Path) -> NoticeFiles:
    (tmp_path / LINEAGE).mkdir()
    return NoticeFiles(tmp_path, lambda: None)


async def test_the_next_leader_finds_what_waits(files: NoticeFiles, tmp_path: Path) -> None:
    one, two = notification(1), notification(2)
    assert await files.earlier(LINEAGE, 1) == []
    await files.keep(LINEAGE, 1, [one])
    await files.keep(LINEAGE, 1, [one, two])
    assert await files.earlier(LINEAGE, 1) == []
    assert await files.earlier(LINEAGE, 2) == [one, two]
    await files.keep(LINEAGE, 2, [])
    assert await files.earlier(LINEAGE, 3) == []
    assert [path.name for path in (tmp_path / LINEAGE / "webhook").iterdir()] == [f"{2:015d}.record"]


async def test_a_leader_that_died_before_it_removed_the_earlier_file_doubles_nothing(files: NoticeFiles) -> None:
    await files.keep(LINEAGE, 2, [notification(1), notification(2)])
    await files.keep(LINEAGE, 1, [notification(1)])
    assert await files.earlier(LINEAGE, 3) == [notification(1), notification(2)]


async def test_a_damaged_file_is_passed_over(files: NoticeFiles, tmp_path: Path) -> None:
    await files.keep(LINEAGE, 2, [notification(2)])
    await files.keep(LINEAGE, 1, [notification(1)])
    (tmp_path / LINEAGE / "webhook" / f"{2:015d}.record").write_bytes(b"damaged")
    assert await files.earlier(LINEAGE, 3) == [notification(1)]
    await files.keep(LINEAGE, 3, [notification(1)])
    assert [path.name for path in (tmp_path / LINEAGE / "webhook").iterdir()] == [f"{3:015d}.record"]


async def test_what_a_later_release_has_kept_waits_for_it(files: NoticeFiles, tmp_path: Path) -> None:
    await files.keep(LINEAGE, 1, [notification(1)])
    later = tmp_path / LINEAGE / "webhook" / f"{1:015d}.record"
    readable = later.read_bytes()
    later.write_bytes(encode_record(KIND, VERSION + 1, b"{}"))
    assert await files.earlier(LINEAGE, 2) == []
    await files.keep(LINEAGE, 2, [notification(2)])
    assert later.exists()
    later.write_bytes(readable)  # what the later release makes of it
    upgraded = NoticeFiles(tmp_path, lambda: None)
    assert await upgraded.earlier(LINEAGE, 3) == [notification(1), notification(2)]
    await upgraded.keep(LINEAGE, 3, [])
    assert [path.name for path in later.parent.iterdir()] == [f"{3:015d}.record"]


async def test_a_storage_that_is_not_mounted_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    files = NoticeFiles(tmp_path, lambda: Unavailable("not mounted"))
    with pytest.raises(Unavailable, match="not mounted"):
        await files.earlier(LINEAGE, 1)
    with pytest.raises(Unavailable, match="not mounted"):
        await files.keep(LINEAGE, 1, [])


def test_an_event_of_a_kind_that_only_a_later_release_knows_is_left_out() -> None:
    later = encode(notification(1)).replace(b"alarm-raised", b"alarm-redrawn")
    data = encode_record(KIND, VERSION, msgspec.json.encode([msgspec.Raw(later), notification(2)]))
    assert decode_waiting(data, where="file") == [notification(2)]

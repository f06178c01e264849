"""The leader's chronicle: nothing waits for it, nothing is lost unnoticed, and the next leader reads it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from emberkeep.adapters.chronicle import stored
from emberkeep.adapters.chronicle.files import ChronicleFiles
from emberkeep.adapters.chronicle.stored import StoredChronicle
from emberkeep.base.errors import Unavailable
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.selection import Selection
from tests.unit.chronicle.occurrences import JOB
from tests.unit.rest.server import eventually

EVERYTHING = Selection(limit=1000)
OTHER = "b" * 32


class Storage:
    usable = True


def chronicle(root: Path, epoch: int = 1, storage: Storage | None = None) -> StoredChronicle:
    made = StoredChronicle(root, lambda: 7000, lambda: storage is None or storage.usable)
    made.begin(epoch, "store-1")
    return made


def noted(number: int, job_id: str = JOB) -> Occurrence:
    return Occurrence(what=What.STATUS, message=f"number {number}", job_id=job_id)


async def messages(source: StoredChronicle, job_id: str = JOB) -> list[str]:
    return [each.message for each in (await source.read(job_id, EVERYTHING)).occurrences[::-1]]


async def test_what_was_noted_is_readable_at_once_and_by_the_next_leader(tmp_path: Path) -> None:
    first = chronicle(tmp_path)
    first.note(noted(1))
    first.note(noted(2))
    assert await messages(first) == ["number 1", "number 2"]
    await first.flush()
    second = chronicle(tmp_path, 2)
    second.note(noted(3))
    assert await messages(second) == ["number 1", "number 2", "number 3"]


async def test_nothing_is_created_where_the_storage_should_be(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    first = chronicle(storage / "events" / "cluster-1")
    first.note(noted(1))
    await first.flush()
    assert not storage.exists()
    storage.mkdir()
    await first.flush()
    assert await messages(chronicle(storage / "events" / "cluster-1", 2)) == ["number 1"]


async def test_the_task_stores_without_being_asked(tmp_path: Path) -> None:
    writer = chronicle(tmp_path)
    running = asyncio.create_task(writer.run())
    writer.note(noted(1))
    await eventually(lambda: any(tmp_path.rglob("*.events")))
    running.cancel()
    assert await messages(chronicle(tmp_path, 2)) == ["number 1"]


async def test_occurrences_wait_while_the_storage_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_PAUSE", 0.01)
    storage = Storage()
    storage.usable = False
    writer = chronicle(tmp_path, storage=storage)
    running = asyncio.create_task(writer.run())
    writer.note(noted(1))
    await asyncio.sleep(0)
    assert await messages(writer) == ["number 1"]
    assert not any(tmp_path.rglob("*.events"))
    storage.usable = True
    await eventually(lambda: any(tmp_path.rglob("*.events")))
    running.cancel()


async def test_too_many_are_counted_and_said_in_the_cluster_s_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MOST_WAITING", 3)
    writer = chronicle(tmp_path)
    for number in range(1, 6):
        writer.note(noted(number))
    await writer.flush()
    await writer.flush()
    assert writer.lost == 2
    assert await messages(writer) == ["number 3", "number 4", "number 5"]
    (gap,) = (await writer.read("", EVERYTHING)).occurrences
    assert (gap.what, gap.details) == (What.EVENTS_LOST, {"count": "2"})


async def test_an_error_of_the_disk_loses_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    writer = chronicle(blocked)
    writer.note(noted(1))
    await writer.flush()
    blocked.unlink()
    await writer.flush()
    assert await messages(chronicle(blocked, 2)) == ["number 1"]


async def test_unreadable_files_are_unavailable_not_empty(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(Unavailable, match="cannot be read now"):
        await chronicle(blocked).read(JOB, EVERYTHING)


async def test_forgotten_jobs_have_no_stream(tmp_path: Path) -> None:
    writer = chronicle(tmp_path)
    writer.note(noted(1))
    writer.note(noted(2, ""))
    await writer.flush()
    writer.forget([JOB])
    await writer.flush()
    assert await messages(writer) == []
    assert await messages(writer, "") == ["number 2"]


async def test_secrets_in_messages_are_masked(tmp_path: Path) -> None:
    writer = chronicle(tmp_path)
    writer.note(Occurrence(what=What.EXCEPTION, message="failed: password=hunter2", job_id=JOB))
    (text,) = await messages(writer)
    assert "hunter2" not in text


async def test_stores_have_chronicles_of_their_own(tmp_path: Path) -> None:
    one = chronicle(tmp_path)
    one.note(noted(1))
    await one.flush()
    other = StoredChronicle(tmp_path, lambda: 7000, lambda: True)
    other.begin(1, "store-2")
    assert await messages(other) == []


async def test_a_stream_that_cannot_be_written_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_BATCH", 2)
    writer = chronicle(tmp_path)
    bad = tmp_path / "store-1" / JOB / "000000000000001.events"
    bad.mkdir(parents=True)  # as good as a file that cannot be written
    for number in range(4):
        writer.note(noted(number))
    writer.note(noted(4, OTHER))
    for _ in range(2):
        await writer.flush()
    assert await messages(chronicle(tmp_path, 2), OTHER) == ["number 4"]
    bad.rmdir()
    for _ in range(2):
        await writer.flush()
    assert await messages(chronicle(tmp_path, 2)) == [f"number {number}" for number in range(4)]


async def test_a_stream_that_cannot_be_deleted_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = chronicle(tmp_path)
    for job_id in (JOB, OTHER):
        writer.note(noted(1, job_id))
    await writer.flush()
    remove = ChronicleFiles.remove

    def refuse(files: ChronicleFiles, job_id: str) -> None:
        if job_id == JOB:
            raise OSError(5, "Input/output error")
        remove(files, job_id)

    with monkeypatch.context() as patched:
        patched.setattr(ChronicleFiles, "remove", refuse)
        writer.forget([JOB, OTHER])
        await writer.flush()
    assert await messages(writer, OTHER) == []
    await writer.flush()
    assert await messages(writer) == []


async def test_text_that_utf_8_cannot_encode_ends_no_leader(tmp_path: Path) -> None:
    writer = chronicle(tmp_path)
    odd = "caf\udce9"  # as in the name of a file whose bytes are not UTF-8
    writer.note(
        Occurrence(what=What.STATUS, message=odd, job_id=JOB, by=odd, node=odd, task_manager=odd, details={odd: odd})
    )
    await writer.flush()
    (found,) = (await chronicle(tmp_path, 2).read(JOB, EVERYTHING)).occurrences
    shown = "caf\\udce9"
    assert (found.message, found.by, found.node, found.task_manager) == (shown,) * 4
    assert found.details == {shown: shown}

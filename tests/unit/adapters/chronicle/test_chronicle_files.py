"""The chronicle's files: durable, bounded, taken over by the next leader, and safe from a deposed one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emberkeep.adapters.chronicle.files import ChronicleFiles
from emberkeep.chronicle.occurrence import Occurrence, What
from tests.unit.chronicle.occurrences import JOB, at


def files(root: Path, epoch: int, most: int = 100) -> ChronicleFiles:
    return ChronicleFiles(root, epoch, most, most)


def seconds(found: list[Occurrence]) -> list[int]:
    return [each.time_ms // 1000 for each in found]


def test_the_next_leader_reads_and_continues_the_stream(tmp_path: Path) -> None:
    files(tmp_path, 1).append(JOB, [at(1, What.STATUS), at(2, What.STATUS)])
    second = files(tmp_path, 2)
    assert seconds(second.read(JOB)) == [1, 2]
    second.append(JOB, [at(3, What.STATUS, epoch=2)])
    second.append(JOB, [at(4, What.STATUS, epoch=2)])
    assert seconds(files(tmp_path, 3).read(JOB)) == [1, 2, 3, 4]
    assert [path.name for path in (tmp_path / JOB).iterdir()] == ["000000000000002.events"]


def test_a_deposed_leader_that_still_writes_destroys_nothing(tmp_path: Path) -> None:
    old, new = files(tmp_path, 1), files(tmp_path, 2)
    old.append("", [at(1, What.STATUS)])
    new.append("", [at(2, What.STATUS, epoch=2)])
    old.append("", [at(3, What.STATUS)])
    new.append("", [at(4, What.STATUS, epoch=2)])
    assert seconds(new.read("")) == [1, 3, 2, 4], "in the order of epochs"


def test_a_stream_stays_bounded(tmp_path: Path) -> None:
    writer = files(tmp_path, 1, most=10)
    for second in range(1, 100):
        writer.append(JOB, [at(second, What.STATUS)])
    found = seconds(writer.read(JOB))
    assert 10 <= len(found) <= 20
    assert found == list(range(100 - len(found), 100))


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    writer = files(tmp_path, 1)
    writer.append(JOB, [at(1, What.STATUS), at(2, What.STATUS)])
    path = tmp_path / JOB / "000000000000001.events"
    path.write_bytes(path.read_bytes()[:-7])
    successor = files(tmp_path, 2)
    successor.append(JOB, [at(3, What.STATUS, epoch=2)])
    assert seconds(successor.read(JOB)) == [1, 3]


def test_a_write_that_failed_in_the_middle_of_a_line_spoils_no_later_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = files(tmp_path, 1)
    writer.append(JOB, [at(1, What.STATUS)])

    def full(descriptor: int, data: memoryview) -> int:
        with open(descriptor, "ab", closefd=False) as file:
            file.write(data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("emberkeep.adapters.chronicle.files.os.write", full)
        with pytest.raises(OSError, match="No space"):
            writer.append(JOB, [at(2, What.STATUS)])
    writer.append(JOB, [at(2, What.STATUS)])
    assert seconds(writer.read(JOB)) == [1, 2]


def test_a_job_s_stream_can_be_removed_and_the_cluster_s_cannot(tmp_path: Path) -> None:
    writer = files(tmp_path, 1)
    writer.append(JOB, [at(1, What.STATUS)])
    writer.append("", [at(1, What.STATUS)])
    writer.remove(JOB)
    writer.remove(JOB)
    writer.remove("")
    assert writer.read(JOB) == []
    assert seconds(writer.read("")) == [1]


def test_an_id_that_leads_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the id of a job"):
        files(tmp_path, 1).read("../../etc")


@pytest.mark.req("SAFE-2")
def test_nothing_is_put_where_a_storage_was_just_unmounted(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    writer = files(storage / "events" / "default" / "1", 1)
    writer.append("", [at(1, What.STATUS)])
    storage.rename(tmp_path / "elsewhere")
    storage.mkdir()
    with pytest.raises(FileNotFoundError):
        writer.append(JOB, [at(2, What.STATUS)])
    assert not list(storage.iterdir())
    writer.append(JOB, [at(3, What.STATUS)])  # the caller has found that the storage is this cluster's
    assert seconds(writer.read(JOB)) == [3]


def test_a_stream_that_somebody_has_removed_is_begun_anew(tmp_path: Path) -> None:
    writer = files(tmp_path, 1, most=2)
    writer.append(JOB, [at(1, What.STATUS)])
    shutil.rmtree(tmp_path / JOB)
    with pytest.raises(FileNotFoundError):
        writer.append(JOB, [at(2, What.STATUS)])
    writer.append(JOB, [at(2, What.STATUS)])
    assert seconds(writer.read(JOB)) == [2]

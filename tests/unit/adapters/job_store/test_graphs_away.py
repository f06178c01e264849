"""Job graphs that cannot be read at present: neither gone nor damaged."""

import errno
import os
from pathlib import Path

import pytest

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.graph_files import GraphFiles, StateHandle
from emberkeep.base.errors import Damaged, Fatal, NewerFormat, Unavailable
from tests.support.contracts.job_store import job

JOB = job(1).job_id


def written(directory: Path) -> tuple[StateHandle, Path]:
    handle = GraphFiles(directory).write(job(1))
    return handle, directory / handle.location


@pytest.mark.req("SAFE-1")
def test_a_missing_directory_file_or_parent_is_unavailable_and_says_where(tmp_path: Path) -> None:
    handle, path = written(tmp_path / "storage" / "graphs")
    for missing in (path, path.parent, path.parent.parent):
        elsewhere = tmp_path / "elsewhere"
        missing.rename(elsewhere)
        with pytest.raises(Unavailable, match=str(path)):
            GraphFiles(path.parent).read(JOB, handle)
        elsewhere.rename(missing)
    assert GraphFiles(path.parent).read(JOB, handle) == job(1)


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT, errno.ENOTCONN])
def test_an_error_of_the_file_system_is_unavailable(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, path = written(tmp_path)

    def fail(_: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(Unavailable, match=os.strerror(number)):
        GraphFiles(path.parent).read(JOB, handle)


@pytest.mark.req("SAFE-1")
def test_a_file_system_that_does_not_answer_is_unavailable_and_is_not_waited_for_twice(tmp_path: Path) -> None:
    handle, path = written(tmp_path)
    path.unlink()
    os.mkfifo(path)  # whoever opens it waits for a writer
    files = GraphFiles(path.parent, patience=FilePatience(0.05))
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            files.read(JOB, handle)
        other = job(2)
        with pytest.raises(Unavailable, match="does not answer"):
            files.write(other)
        assert not (tmp_path / f"{other.job_id}.graph").exists()
    finally:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.req("SAFE-3")
def test_what_was_read_whole_and_does_not_fit_is_damaged(tmp_path: Path) -> None:
    handle, path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match="bytes"):
        GraphFiles(path.parent).read(JOB, handle)


@pytest.mark.req("SAFE-14")
def test_a_newer_graph_is_neither(tmp_path: Path) -> None:
    handle, path = written(tmp_path)
    newer = StateHandle(location=handle.location, size=handle.size, sha256=handle.sha256, graph_version=2)
    with pytest.raises(NewerFormat):
        GraphFiles(path.parent).read(JOB, newer)


@pytest.mark.req("SAFE-1")
def test_a_write_that_meets_an_absent_file_system_is_to_be_tried_again_and_a_full_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", fail)
    number = errno.ESTALE
    with pytest.raises(Unavailable):
        GraphFiles(tmp_path / "graphs").write(job(1))
    number = errno.ENOSPC
    with pytest.raises(Fatal):
        GraphFiles(tmp_path / "graphs").write(job(1))


class TestSweep:
    @pytest.mark.req("SAFE-15")
    def test_unfinished_files_of_earlier_leaders_go_and_no_others(self, tmp_path: Path) -> None:
        unfinished = f".{JOB}.{{}}.graph.0123456789ab.tmp"
        foreign = (".something.3.graph.0123456789ab.tmp", ".notes.tmp", f".{JOB}.3.graph.tmp", f"{JOB}.3.b.graph")
        for name in (unfinished.format(3), unfinished.format(4), unfinished.format(5), *foreign):
            (tmp_path / name).write_bytes(b"torn")
        GraphFiles(tmp_path, 4).sweep_unfinished()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {unfinished.format(4), unfinished.format(5), *foreign}

    @pytest.mark.req("SAFE-1")
    def test_a_directory_that_is_not_there_is_not_swept_and_no_error(self, tmp_path: Path) -> None:
        for files in (GraphFiles(tmp_path / "away", 4), GraphFiles(tmp_path / "away")):
            files.sweep_unfinished()
            assert not files.without_handle(set())
        assert not (tmp_path / "away").exists()

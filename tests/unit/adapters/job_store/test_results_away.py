"""Results in files that cannot be read at present: their jobs have ended all the same."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.result_files import INLINE_LIMIT, ResultFile, ResultFiles
from emberkeep.base.errors import Damaged, Fatal, Unavailable
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import AttemptRecord, ExceptionEntry, JobStatus
from tests.support.contracts.job_store import job, result_of

LARGE = msgspec.structs.replace(
    result_of(job(1), JobStatus.FAILED),
    root_cause="it failed\n" * 1000,
    attempts=tuple(AttemptRecord(attempt=n, task_manager=TaskManagerId("tm"), started_ms=n) for n in range(500)),
    exceptions=(ExceptionEntry(timestamp_ms=1, attempt=1, kind="e", message="m", traceback="x" * 100_000),),
)


def written(directory: Path) -> tuple[ResultFile, Path]:
    file = ResultFiles(directory, 1).write(LARGE)
    assert file is not None
    return file, directory / file.location


@pytest.mark.req("SAFE-1")
def test_a_result_that_cannot_be_read_now_is_unavailable_and_its_job_is_still_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = written(tmp_path / "graphs")
    file = msgspec.json.decode(msgspec.json.encode(file), type=ResultFile)
    files = ResultFiles(path.parent, 2)
    path.parent.rename(tmp_path / "away")
    with pytest.raises(Unavailable, match=str(path)):
        files.read(file)
    outline = files.listed(file)
    (tmp_path / "away").rename(path.parent)
    assert files.listed(file) == files.read(file) == LARGE
    assert (outline.job_id, outline.status, outline.ended_ms) == (LARGE.job_id, LARGE.status, LARGE.ended_ms)
    assert outline.idempotency_key == LARGE.idempotency_key
    assert outline.attempts[-1].attempt == LARGE.attempts[-1].attempt
    assert outline.root_cause.startswith("it failed")
    assert len(msgspec.json.encode(file)) < INLINE_LIMIT
    for number in (errno.EIO, errno.ESTALE, errno.EACCES):

        def fail(_: Path, number: int = number) -> bytes:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "read_bytes", fail)
        with pytest.raises(Unavailable):
            files.read(file)
        assert files.listed(file) == outline


@pytest.mark.req("SAFE-3")
def test_a_damaged_result_is_listed_in_outline_too(tmp_path: Path) -> None:
    file, path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    files = ResultFiles(tmp_path, 2)
    with pytest.raises(Damaged):
        files.read(file)
    assert files.listed(file).status is JobStatus.FAILED
    without = msgspec.structs.replace(file, outline=None)
    with pytest.raises(Damaged):
        files.listed(without)
    path.unlink()
    with pytest.raises(Fatal, match="does not exist"):
        files.listed(without)


@pytest.mark.req("SAFE-1")
def test_a_file_system_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    file, path = written(tmp_path)
    path.unlink()
    os.mkfifo(path)  # whoever opens it waits for a writer
    files = ResultFiles(tmp_path, 2, patience=FilePatience(0.05))
    try:
        assert files.listed(file).job_id == LARGE.job_id
        with pytest.raises(Unavailable, match="does not answer"):
            files.write(LARGE)
    finally:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def test_unfinished_results_of_earlier_leaders_are_swept(tmp_path: Path) -> None:
    _, path = written(tmp_path)
    for epoch in (1, 2, 3):
        (tmp_path / f".{LARGE.job_id}.{epoch}.result.0123456789ab.tmp").touch()
    kept = {path.name, f"{job(2).job_id}.0.result", ".somebody.else.tmp"}
    for name in kept - {path.name}:
        (tmp_path / name).touch()
    ResultFiles(tmp_path, 2).sweep_unfinished()
    assert {found.name for found in tmp_path.iterdir()} == {
        *kept,
        *(f".{LARGE.job_id}.{epoch}.result.0123456789ab.tmp" for epoch in (2, 3)),
    }


@pytest.mark.req("SAFE-7")
def test_of_unknown_jobs_only_files_of_earlier_leaders_count(tmp_path: Path) -> None:
    for number, epoch in ((1, 1), (2, 1), (2, 2), (2, 3), (3, 2)):
        (tmp_path / f"{job(number).job_id}.{epoch}.result").touch()
    for name in (f"{job(2).job_id}.1.graph", f"{job(2).job_id}.result", "notes.1.result"):
        (tmp_path / name).touch()
    second = job(2).job_id
    assert ResultFiles(tmp_path, 3).without_node({job(1).job_id, job(3).job_id}) == {
        second: [f"{second}.1.result", f"{second}.2.result"]
    }

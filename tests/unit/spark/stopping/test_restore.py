"""Starting queries from a savepoint, in the attempts of one job."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from emberkeep.base.ids import JobId
from emberkeep.lifecycle.manifest import DELETING_NAME, MANIFEST_NAME, Manifest
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark import availability
from emberkeep.spark.errors import RestoreRefused
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.functions import states as function_states
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping import restore
from emberkeep.spark.stopping.restore import Restore
from emberkeep.spark.stopping.savepoint_copy import SavepointWriter
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage, SavepointStorages
from tests.unit.spark.files.files_on_disk import FilesOnDisk, files_on_disk, write_checkpoint


def query(name: str, location: Path) -> ScriptQuery:
    return ScriptQuery(
        writer=SimpleNamespace(_spark=None),
        method="start",
        positional=(),
        named={},
        key=f"query-{name}",
        name=name,
        identity=QueryIdentity("foreachbatch", "append", "f"),
        started=StartedQuery(str(location)),
        reached=str(location),
        fields=[],
    )


class Job:
    """That starts from a savepoint of queries "a" and "b", made after batch 41."""

    def __init__(self, place: Path, number: int = 1) -> None:
        self.place, self.number = place, number
        self.savepoint = place / "savepoint"

    def attempt(self, number: int, may_commit: Callable[[], None] = lambda: None) -> Restore:
        job_id, notices = JobId(f"{self.number:032x}"), Notices()
        root, places = f"{self.place}/job-{self.number}", CheckpointPlaces(lambda: None, (), notices)
        states = FunctionStates(root, job_id, number, DirectLocations(), places, may_commit, notices)
        storages = SavepointStorages(lambda _: None, self.place / "staging")
        return Restore(str(self.savepoint), job_id, storages, states, may_commit, notices)

    def query(self, name: str) -> ScriptQuery:
        return query(name, self.place / f"job-{self.number}" / name)

    def newest(self, name: str) -> list[int]:
        return FilesOnDisk().numbered(str(self.place / f"job-{self.number}" / name / "commits"))

    def run_a_batch(self, name: str, batch: int) -> None:
        write_checkpoint(self.place / f"job-{self.number}" / name, batch)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    for module in (restore, function_states):
        monkeypatch.setattr(module, "HadoopFiles", lambda _: files_on_disk())
    job = Job(tmp_path)
    save(job, 41)
    return job


def save(job: Job, batch: int) -> None:
    """Make the savepoint from which the job starts: of two queries that have committed ``batch``; -1: none."""
    heading = Manifest(
        job_id=JobId("a" * 32),
        job_name="test",
        attempt=1,
        trigger_id="b" * 32,
        procedure=Procedure.SUSPEND,
        created_ms=1,
        spark_version="4.3.0",
        emberkeep_version="0",
        queries=(),
        files=(),
    )
    before = [query(name, job.place / f"before{batch}" / name) for name in ("a", "b")]
    for each in before:
        write_checkpoint(Path(str(each.reached)), batch)
    storage = DirectoryStorage(str(job.savepoint), files_on_disk())
    writer = SavepointWriter(files_on_disk(), str(job.savepoint), storage, lambda: None)
    writer.write(heading, before, {}, {"sink": b"kept"}, lambda _: None)


@pytest.mark.req("SAFE-7")
def test_a_savepoint_that_is_being_deleted_is_refused(job: Job) -> None:
    """Another leader may delete it, which does not know this job."""
    (job.savepoint / MANIFEST_NAME).rename(job.savepoint / DELETING_NAME)
    with pytest.raises(RestoreRefused, match="is being deleted"):
        job.attempt(1).prepare(job.query("a"))
    assert job.newest("a") == []


@pytest.mark.req("END-5")
def test_later_attempts_need_the_savepoint_no_more(job: Job) -> None:
    first = job.attempt(1)
    for name in ("a", "b", "new"):
        first.prepare(job.query(name))
    assert (job.newest("a"), job.newest("b"), job.newest("new")) == ([41], [41], [])
    job.run_a_batch("a", 42)
    shutil.rmtree(job.savepoint)
    second = job.attempt(2)
    assert second.function_states(None) == {"sink": b"kept"}
    for name in ("a", "b", "new"):
        second.prepare(job.query(name))
    assert job.newest("a") == [41, 42], "it goes on from where it has come to"
    with pytest.raises(RestoreRefused, match="no savepoint exists at"):
        second.prepare(job.query("other"))


@pytest.mark.req("END-5")
def test_a_query_whose_key_an_earlier_release_did_not_shorten_is_found_by_its_name(job: Job) -> None:
    renamed = job.query("a")
    renamed.key = "query-shortened"
    job.attempt(1).prepare(renamed)
    assert job.newest("a") == [41]


@pytest.mark.req("END-5")
def test_what_another_job_has_restored_is_looked_at_anew(job: Job) -> None:
    job.attempt(1).prepare(job.query("a"))
    job.run_a_batch("a", 42)
    other = Job(job.place, 2)
    theirs = query("a", job.place / "job-1" / "a")
    with pytest.raises(RestoreRefused, match=r"is at another batch \(batch 42 committed"):
        other.attempt(1).prepare(theirs)


@pytest.mark.req("END-5")
@pytest.mark.parametrize("batch", [41, -1])
def test_a_checkpoint_at_the_savepoints_batch_is_taken_as_it_is(job: Job, batch: int) -> None:
    save(job, batch)
    job.run_a_batch("a", batch)
    written = [path.stat() for path in (job.place / "job-1" / "a").rglob("*") if path.is_file()]
    job.attempt(1).prepare(job.query("a"))
    assert job.newest("a") == ([batch] if batch >= 0 else [])
    left = [path.stat() for path in (job.place / "job-1" / "a").rglob("*") if not path.name.startswith("_")]
    assert {each.st_ino for each in written} <= {each.st_ino for each in left}


@pytest.mark.req("END-5")
def test_a_checkpoint_that_came_to_the_same_batch_in_another_way_is_refused(job: Job) -> None:
    """Another job was started from a copy of it: both have the same query id, and counted on from the same batch."""
    own = job.query("a")
    job.run_a_batch("a", 41)
    offsets = Path(str(own.reached)) / "offsets" / "41"
    offsets.write_text(offsets.read_text().replace('"logOffset":41', '"logOffset":57'))
    with pytest.raises(RestoreRefused, match=r"another place of its input: its batch 41 is not that of the savepoint"):
        job.attempt(1).prepare(own)
    assert '"logOffset":57' in offsets.read_text(), "it is left as it is"


@pytest.mark.req("END-5", "END-6")
def test_what_a_crash_has_left_half_done_is_done_again(job: Job) -> None:
    """Asked before each change: the states, the record before, three files, the record after."""
    for questions in range(6):
        with pytest.raises(InterruptedError):
            job.attempt(1, ends_after(questions)).prepare(job.query("a"))
    (job.place / "job-1" / "a" / "commits").mkdir(exist_ok=True)
    (job.place / "job-1" / "a" / "commits" / "17").write_text("half done")
    job.attempt(2).prepare(job.query("a"))
    assert job.newest("a") == [41]


@pytest.mark.req("HA-7", "END-5")
def test_a_superseded_attempt_leaves_what_its_successor_has_come_to(job: Job) -> None:
    """It was stopped when the record said that the restore was half done."""
    with pytest.raises(InterruptedError):
        job.attempt(1, ends_after(3)).prepare(job.query("a"))
    thawed = job.attempt(1, ends_after(0))
    found = thawed._record(files_on_disk(), str(job.query("a").reached))
    assert found is not None
    assert not found.complete
    job.attempt(2).prepare(job.query("a"))
    job.run_a_batch("a", 42)
    with pytest.raises(InterruptedError):
        thawed._remove_half_done(files_on_disk(), job.query("a"), str(job.query("a").reached), found)
    assert job.newest("a") == [41, 42]


def ends_after(questions: int) -> Callable[[], None]:
    left = iter(range(questions))

    def wait() -> None:
        if next(left, None) is None:
            raise InterruptedError("superseded")

    return wait


class Mount:
    """A file system that is away, and comes back at the second look."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self._aside = place.with_name("away")
        self.looks = 0
        monkeypatch.setattr(availability, "time", SimpleNamespace(sleep=self._pass))
        place.rename(self._aside)

    def _pass(self, _: float) -> None:
        self.looks += 1
        if self.looks == 2:
            self._aside.rename(self.place)


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_savepoint_whose_file_system_is_away_is_waited_for(
    job: Job, attempt: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = job.place / "mount"
    place.mkdir()
    job.savepoint = job.savepoint.rename(place / "savepoint")
    mount = Mount(place, monkeypatch)
    job.attempt(attempt).prepare(job.query("a"))
    assert mount.looks == 2
    assert job.newest("a") == [41]
    assert f"emberkeep: waiting for the job's savepoint: {job.savepoint} cannot be read now" in capsys.readouterr().err


@pytest.mark.req("SAFE-1")
def test_a_manifest_that_cannot_be_read_now_is_waited_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    read, looks = Path.read_bytes, 0

    def failing(path: Path) -> bytes:
        if path.name == MANIFEST_NAME and looks < 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    def look_again(_: float) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(Path, "read_bytes", failing)
    monkeypatch.setattr(availability, "time", SimpleNamespace(sleep=look_again))
    job.attempt(1).prepare(job.query("a"))
    assert looks == 2
    assert job.newest("a") == [41]

"""States of functions that a later attempt begins with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.manifest import SavepointFile
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.functions import states as function_states
from emberkeep.spark.functions.states import FunctionStates, KeptStates
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from tests.unit.spark.files.files_on_disk import FilesOnDisk

JOB = JobId("a" * 32)
STARTED_FROM = KeptStates(job_id=JOB, savepoint="/s/first", created_ms=1_600_000_000_000, states={"sink": b"1"})


def started_from() -> KeptStates:
    return STARTED_FROM


def gone() -> KeptStates:
    raise Fatal("the savepoint is gone")


class FullDisk(FilesOnDisk):
    def write(self, location: str, data: bytes) -> SavepointFile:
        del data
        raise Fatal(f"{location}: no space left")


@pytest.fixture(autouse=True)
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_states, "HadoopFiles", lambda _: FilesOnDisk())


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., FunctionStates]:
    def attempt(number: int, job: JobId = JOB, may_commit: Callable[[], None] = lambda: None) -> FunctionStates:
        notices = Notices()
        places = CheckpointPlaces(lambda: None, (), notices)
        return FunctionStates(f"{tmp_path}/job/", job, number, DirectLocations(), places, may_commit, notices)

    return attempt


@pytest.mark.req("END-5")
def test_a_later_attempt_begins_with_the_newest_states_and_says_whose(
    attempt: Callable[..., FunctionStates], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = attempt(1)
    assert first.begin_with(None, started_from) == {"sink": b"1"}
    assert capsys.readouterr().err == ""
    assert attempt(2).begin_with(None, gone) == {"sink": b"1"}, "the savepoint is not needed any more"
    assert "attempt 2 gives its functions" in capsys.readouterr().err
    for number in range(3):
        first.keep(None, f"/s/own-{number}", 1_600_000_000_000 + number, {"sink": b"2", f"worker@{number}": b"3"})
    assert first.begin_with(None, gone) == {"sink": b"1"}, "it goes on with what it has begun with"
    assert attempt(3).begin_with(None, gone) == {"sink": b"2", "worker@2": b"3"}
    said = capsys.readouterr().err
    assert "for the savepoint /s/own-2 (2020-09-13 12:26:40 UTC): sink, worker." in said
    assert len(list((tmp_path / "job" / "_emberkeep_functions").iterdir())) == 1


def test_an_attempt_of_a_job_without_savepoints_begins_with_nothing(
    attempt: Callable[..., FunctionStates], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        assert attempt(number).begin_with(None, lambda: None) == {}
    attempt(2).keep(None, "/s/own", 1, {})
    assert not (tmp_path / "job").exists(), "nothing is written for jobs without such functions"
    assert capsys.readouterr().err == ""


def test_functions_that_have_no_state_any_more_begin_with_none(
    attempt: Callable[..., FunctionStates], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(1).keep(None, "/s/own", 1, {"sink": b"1"})
    attempt(2).keep(None, "/s/own", 1, {})
    assert attempt(3).begin_with(None, gone) == {}
    with monkeypatch.context() as patched:
        patched.setattr(function_states, "HadoopFiles", lambda _: FullDisk())
        other = attempt(1, JobId("b" * 32))
        assert other.begin_with(None, started_from) == {"sink": b"1"}
    other.keep(None, "/s/own", 1, {})
    assert attempt(2, JobId("b" * 32)).begin_with(None, gone) == {}


def test_what_another_job_has_kept_is_not_taken(attempt: Callable[..., FunctionStates]) -> None:
    attempt(1, JobId("b" * 32)).keep(None, "/s/theirs", 1, {"sink": b"theirs"})
    assert attempt(2).begin_with(None, started_from) == {"sink": b"1"}


def test_a_start_whose_states_cannot_be_kept_warns_and_needs_the_savepoint_again(
    attempt: Callable[..., FunctionStates], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(function_states, "HadoopFiles", lambda _: FullDisk())
    assert attempt(1).begin_with(None, started_from) == {"sink": b"1"}
    assert "cannot keep the states of functions in /s/first for later attempts: " in capsys.readouterr().err
    with pytest.raises(Fatal, match="the savepoint is gone"):
        attempt(2).begin_with(None, gone)
    assert attempt(2).begin_with(None, started_from) == {"sink": b"1"}


@pytest.mark.req("SAFE-19", "SAFE-24")
@pytest.mark.parametrize("savepoint", ["/s/own", ""])
def test_states_that_cannot_be_kept_leave_the_earlier_ones(
    attempt: Callable[..., FunctionStates], monkeypatch: pytest.MonkeyPatch, savepoint: str
) -> None:
    """Then there is no savepoint, and the driver does not move."""
    attempt(1).begin_with(None, started_from)
    with monkeypatch.context() as patched:
        patched.setattr(function_states, "HadoopFiles", lambda _: FullDisk())
        with pytest.raises(Fatal, match="no space left"):
            attempt(1).keep(None, savepoint, 1, {"sink": b"2"})
    assert attempt(2).begin_with(None, gone) == {"sink": b"1"}


def test_older_states_that_cannot_be_deleted_do_not_count_and_go_later(
    attempt: Callable[..., FunctionStates], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class NothingIsDeleted(FilesOnDisk):
        def delete(self, location: str) -> None:
            raise Fatal(f"{location}: permission denied")

    attempt(1).begin_with(None, started_from)
    with monkeypatch.context() as patched:
        patched.setattr(function_states, "HadoopFiles", lambda _: NothingIsDeleted())
        attempt(1).keep(None, "/s/own", 1, {"sink": b"2"})
        assert attempt(2).begin_with(None, gone) == {"sink": b"2"}
    attempt(2).keep(None, "/s/own", 1, {"sink": b"3"})
    assert len(list((tmp_path / "job" / "_emberkeep_functions").iterdir())) == 1


@pytest.mark.req("SAFE-19")
def test_the_attempt_after_a_move_begins_with_what_functions_had(
    attempt: Callable[..., FunctionStates], capsys: pytest.CaptureFixture[str]
) -> None:
    attempt(1).begin_with(None, started_from)
    attempt(1).keep(None, "", 1_600_000_000_000, {"sink": b"2"})
    assert attempt(2).begin_with(None, gone) == {"sink": b"2"}
    assert "that they had when the job's driver moved (2020-09-13 12:26:40 UTC): sink." in capsys.readouterr().err
    attempt(2).keep(None, "", 2, {})
    assert attempt(3).begin_with(None, gone) == {}, "they had none any more"


@pytest.mark.req("HA-7")
def test_a_superseded_attempt_keeps_nothing(attempt: Callable[..., FunctionStates]) -> None:
    attempt(2).keep(None, "/s/own", 1, {"sink": b"2"})

    def superseded() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        attempt(1, may_commit=superseded).keep(None, "/s/older", 1, {"sink": b"older"})
    assert attempt(3).begin_with(None, gone) == {"sink": b"2"}


def test_a_damaged_record_is_named_with_what_to_do(attempt: Callable[..., FunctionStates], tmp_path: Path) -> None:
    attempt(1).begin_with(None, started_from)
    (record,) = (tmp_path / "job" / "_emberkeep_functions").iterdir()
    record.write_bytes(record.read_bytes()[:-2])
    with pytest.raises(Fatal, match="damaged") as error:
        attempt(2).begin_with(None, started_from)
    assert f"remove {tmp_path}/job/_emberkeep_functions" in str(error.value)

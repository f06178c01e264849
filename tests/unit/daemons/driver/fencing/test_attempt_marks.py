"""A driver writes its attempt's mark at its start, and reads the marks while no JobManager confirms its attempt."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import Conflict, RetryLater, Unavailable
from emberkeep.daemons.driver.fencing.attempt_marks import AttemptMarks
from emberkeep.daemons.driver.fencing.mark_watch import MarkWatch
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobmaster.lease import AttemptLease
from tests.unit.formats.golden_samples import DRIVER_SPEC

pytestmark = pytest.mark.req("HA-7")

FREEZE = 10.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of all jobs' checkpoints."""
    place = tmp_path / "checkpoints"
    place.mkdir()
    return place


def spec_of(place: Path, attempt: int) -> DriverSpec:
    root = str(place / DRIVER_SPEC.graph.job_id)
    return msgspec.structs.replace(DRIVER_SPEC, attempt=attempt, checkpoint_root=root, checkpoints=())


def marks_of(place: Path, attempt: int) -> AttemptMarks:
    marks = AttemptMarks(spec_of(place, attempt))
    marks.write()
    return marks


def test_an_attempt_that_begins_is_seen_by_all_older_ones(place: Path) -> None:
    first = marks_of(place, 1)
    assert first.newest() == 0
    assert not list(place.iterdir()), "a first attempt leaves nothing behind"
    second = marks_of(place, 2)
    assert [first.newest(), second.newest()] == [2, 2]
    third = marks_of(place, 3)
    assert [first.newest(), second.newest(), third.newest()] == [3, 3, 3]
    assert sorted(
        path.name for path in (place / DRIVER_SPEC.graph.job_id / ".attempts").iterdir() if path.is_file()
    ) == ["3"]


def test_an_attempt_that_comes_too_late_does_not_begin(place: Path) -> None:
    newer = marks_of(place, 3)
    with pytest.raises(Conflict, match=r"attempt 3 of job .* has begun"):
        marks_of(place, 2)
    assert newer.newest() == 3


def test_an_attempt_that_cannot_write_its_mark_does_not_begin(place: Path, tmp_path: Path) -> None:
    place.rmdir()
    marks_of(place, 1)
    with pytest.raises(Unavailable, match="cannot write the mark of attempt 2"):
        marks_of(place, 2)
    place.write_text("not a directory")
    with pytest.raises(RetryLater):
        marks_of(place, 2)


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_storage_that_is_away_does_not_look_like_one_without_newer_attempts(place: Path, attempt: int) -> None:
    marks = marks_of(place, attempt)
    away = place.rename(place.with_name("away"))
    with pytest.raises(Unavailable):
        marks.newest()
    if attempt > 1:
        place.mkdir()  # an empty mount point
        with pytest.raises(Unavailable, match="the mark of this attempt is not below"):
            marks.newest()
        place.rmdir()
    away.rename(place)
    assert marks.newest() == attempt - (attempt == 1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Storage:
    """What a reading of the marks shows; None: the storage cannot be read."""

    newest: int | None = 2

    def __call__(self) -> int:
        if self.newest is None:
            raise Unavailable("the storage is away")
        return self.newest


def test_a_lonely_driver_goes_on_until_it_sees_a_newer_attempt_and_holds_while_it_cannot_see() -> None:
    clock, storage, ended = Clock(), Storage(), list[str]()
    lease = AttemptLease(FREEZE, clock)
    watch = MarkWatch(lease, 2, storage, ended.append)
    for _ in range(10):
        clock.now += FREEZE / 2
        assert watch.read()
        assert not lease.look()
    storage.newest = None
    for _ in range(3):
        clock.now += FREEZE / 2
        assert not watch.read()
        lease.look()
    assert lease.look()
    assert not lease.was_stopped()
    storage.newest = 2
    assert watch.read()
    assert not lease.look()
    assert not ended
    storage.newest = 3
    too_early = lease.ask_to_commit()
    assert not watch.read()
    assert ended == ["attempt 3 has begun, and no JobManager can be reached"]
    assert not lease.may_commit(too_early)

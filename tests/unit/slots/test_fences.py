"""Older epochs and attempts are refused, and the memory for that stays bounded."""

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.slots.table.fences import Fences

JOB = JobId("j")


@pytest.mark.req("HA-7")
def test_only_the_newest_epoch_is_admitted() -> None:
    fences = Fences()
    fences.admit_epoch(3)
    fences.admit_epoch(3)
    with pytest.raises(Conflict, match="epoch 2 is over: a JobManager with epoch 3 leads"):
        fences.admit_epoch(2)
    fences.admit_epoch(4)


@pytest.mark.req("SAFE-6")
def test_epochs_of_another_job_store_say_nothing_until_it_is_followed() -> None:
    fences = Fences()
    fences.admit_epoch(7, "a")
    for epoch in (3, 7, 9):
        with pytest.raises(Conflict, match="another job store"):
            fences.admit_epoch(epoch, "b")
    fences.admit_epoch(8)  # of a release that does not tell it
    fences.follow(9, "a")
    assert fences.epoch == 8
    fences.follow(1, "b")
    assert (fences.epoch, fences.lineage) == (1, "b")
    with pytest.raises(Conflict, match="another job store"):
        fences.admit_epoch(9, "a")


@pytest.mark.req("HA-7")
def test_an_attempt_is_refused_once_a_newer_one_was_seen_or_it_is_over() -> None:
    fences = Fences()
    fences.check(JOB, 1)
    fences.see(JOB, 2)
    fences.check(JOB, 2)
    with pytest.raises(Conflict, match="superseded by attempt 2"):
        fences.check(JOB, 1)
    fences.end(JOB, 2)
    with pytest.raises(Conflict, match="attempt 2 of job j is over"):
        fences.check(JOB, 2)
    fences.check(JOB, 3)
    fences.end(JOB, 3)
    with pytest.raises(Conflict, match="superseded by attempt 3"):
        fences.check(JOB, 2)
    fences.see(JOB, 1)
    assert fences.is_refused(JOB, 2), "what was learned is not unlearned by a late message"


def test_jobs_seen_longest_ago_are_forgotten_unless_they_hold_something() -> None:
    fences = Fences(remembered=2)
    for name in ("a", "b", "c", "d"):
        fences.end(JobId(name), 1)
    fences.end(JobId("b"), 2)
    fences.forget_idle({JobId("a")})
    assert [name for name in "abcd" if fences.is_refused(JobId(name), 1)] == ["a", "b"]

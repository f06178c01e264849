"""Which job comes first by priority, and how long a job with a low one may wait."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.configuration.options.jobs import PRIORITY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.slots.model import Allocation
from tests.unit.slots.test_slot_manager import Rig, per_job

pytestmark = pytest.mark.req("RES-3")

PATIENCE = 60.0  # the default


@pytest.fixture
def rig() -> Rig:
    return Rig()


def taken(rig: Rig, now: float = 0.0) -> list[JobId]:
    return [allotted.allocation.job_id for allotted in rig.match(now)]


def test_each_job_gets_a_first_slot_then_the_highest_priority_gets_all(rig: Rig) -> None:
    rig.add("tm-1")
    rig.add("tm-2")
    low, high, normal = rig.job(3, priority=-100), rig.job(4, priority=100), rig.job(3)
    assert taken(rig) == [high, normal, low, high, high, high, normal, normal]
    assert rig.slots.missing(low) == ("2 of 3 slots (1 core and 1024 MiB each) are missing: all 8 slots are taken")


def test_the_reason_names_how_many_come_first(rig: Rig) -> None:
    rig.add("tm-1")
    first = rig.job(4)
    rig.match()
    low, high, higher = rig.job(1), rig.job(1, priority=1), rig.job(1, priority=2)
    rig.match()
    assert rig.slots.missing(low).endswith("all 4 slots are taken; 2 jobs with a higher priority wait too")
    assert rig.slots.missing(high).endswith("; 1 job with a higher priority waits too")
    assert rig.slots.missing(higher).endswith("all 4 slots are taken")
    assert not rig.slots.missing(first)


def test_equal_priorities_share_fairly(rig: Rig) -> None:
    rig.add("tm-1")
    first, second = rig.job(4, priority=7), rig.job(4, priority=7)
    assert taken(rig) == [first, second, first, second]


def test_driver_places_are_given_by_priority(rig: Rig) -> None:
    rig.add("tm-1")
    low, normal, high = rig.job(priority=-1), rig.job(), rig.job(priority=1)
    for job_id in (low, normal, high):
        rig.ask(job_id, 512)
    assert set(rig.places()) == {normal, high}
    assert rig.slots.missing(low) == "no place for the driver (512 MiB): all 2 driver places are taken"


def test_a_driver_that_has_waited_for_the_patience_comes_first(rig: Rig) -> None:
    registered = rig.add("tm-1", driver_places=1)
    low = rig.job(priority=-1)
    rig.ask(low, 512, now=0.0)
    high = [rig.job(priority=1) for _ in range(2)]
    rig.ask(high[0], 512, now=1.0)
    assert set(rig.places(1.0)) == {high[0]}
    rig.ask(high[1], 512, now=2.0)
    rig.slots.jobs.remove(high[0])
    rig.report(registered, now=PATIENCE)
    assert set(rig.places(PATIENCE)) == {low}


@pytest.mark.parametrize(("text", "number"), [("low", -100), ("normal", 0), ("high", 100), ("-7", -7), ("1000", 1000)])
def test_a_priority_is_a_class_or_a_number(text: str, number: int) -> None:
    assert Configuration().with_texts({"job.priority": text}, "test")[PRIORITY] == number


@pytest.mark.parametrize("text", ["urgent", "1001", "", "1.5"])
def test_other_priorities_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected low \(-100\), normal \(0\), high \(100\), or a whole number"):
        Configuration().with_texts({"job.priority": text}, "test")


@given(
    steps=st.lists(st.floats(0.5, 20.0), min_size=1, max_size=12),
    priorities=st.lists(st.integers(-1000, 1000), min_size=12, max_size=12),
)
def test_new_jobs_of_any_priority_cannot_starve_one(steps: list[float], priorities: list[int]) -> None:
    """One slot frees at each step, and a new job without a slot arrives before each."""
    rig = Rig()
    registered = rig.add("tm-1", slots=1)
    holder = rig.job(1, priority=1000)
    (given_slot,) = rig.match(0.0)
    rig.report(registered, given_slot.allocation)
    waiting = rig.job(1, priority=-1000)
    assert not rig.match(0.0)
    now = 0.0
    for step, priority in zip(steps, priorities, strict=False):
        now += step
        rig.job(1, priority=priority)
        rig.slots.jobs.remove(holder)
        rig.report(registered, now=now)
        (allotted,) = rig.match(now)
        holder = allotted.allocation.job_id
        if holder == waiting:
            return
        assert now < PATIENCE, "the job has waited for the patience, and another one comes first"
        rig.report(registered, allotted.allocation, now=now)


def test_the_wait_begins_again_when_a_job_has_had_a_slot(rig: Rig) -> None:
    registered = rig.add("tm-1", slots=1)
    low = rig.job(1, priority=-1)
    (allotted,) = rig.match(0.0)
    rig.report(registered, allotted.allocation, now=0.0)
    rig.report(registered, now=50.0)  # its slot is lost
    high = rig.job(1, priority=1)
    assert taken(rig, 50.0) == [high]
    held = Allocation(**{**msgspec.structs.asdict(allotted.allocation), "job_id": high})
    rig.report(registered, held, now=50.0)
    rig.slots.jobs.remove(high)
    higher = rig.job(1, priority=1)
    rig.report(registered, now=PATIENCE + 10.0)
    assert taken(rig, PATIENCE + 10.0) == [higher], "it has waited since 50 s only"
    assert rig.slots.jobs.by_id[low].without_slot_since == 50.0


def test_per_job_counts_with_priorities_are_as_without_where_slots_suffice(rig: Rig) -> None:
    rig.add("tm-1")
    jobs = {rig.job(2, priority=priority): 2 for priority in (-5, 5)}
    assert per_job(rig.match()) == jobs

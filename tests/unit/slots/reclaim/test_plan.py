"""Who gives slots back, and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from emberkeep.slots.model import ResourceProfile, RuntimeVersions
from emberkeep.slots.reclaim.plan import plan
from emberkeep.slots.reclaim.standing import JobStanding, ReclaimPlan, SlotSize
from emberkeep.slots.reclaim.terms import Preemption, ReclaimTerms

pytestmark = pytest.mark.req("RES-5")

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SIZE = SlotSize(ResourceProfile(cores=1, memory_mb=1024), RUNTIME)
LARGE = SlotSize(ResourceProfile(cores=2, memory_mb=4096), RUNTIME)


def job(name: str, order: int = 0, **facts: Any) -> JobStanding:
    return JobStanding(**{"job_id": JobId(name), "order": order, "size": SIZE, **facts})


def elastic(name: str, order: int, staying: int, **facts: Any) -> JobStanding:
    return job(name, order, **{"staying": staying, "least": 1, "elastic": True, **facts})


def made(
    *jobs: JobStanding,
    guarantees: Mapping[str, int] | None = None,
    maximum: int = 0,
    preemption: Preemption = Preemption.ELASTIC,
    free: int = 0,
) -> ReclaimPlan:
    return plan(jobs, ReclaimTerms(guarantees or {}, maximum, preemption), lambda _: free)


def jobs_put_back(*jobs: JobStanding, guarantees: Mapping[str, int] | None = None) -> ReclaimPlan:
    return made(*jobs, guarantees=guarantees, preemption=Preemption.JOBS)


def ceilings(found: ReclaimPlan) -> dict[str, int]:
    return {str(name): order.ceiling for name, order in found.ceilings.items()}


class TestGuarantees:
    def test_a_namespace_below_its_guarantee_gets_what_is_missing_of_it_and_no_more(self) -> None:
        found = made(
            elastic("borrower", 1, staying=6),
            job("waiter", 2, namespace="b", missing=5),
            guarantees={"b": 2},
        )
        assert ceilings(found) == {"borrower": 4}
        assert found.claims == {"waiter": 2}
        reason = "namespace 'b' has less than the 2 slots it is guaranteed, and job waiter waits"
        assert found.ceilings[JobId("borrower")].reason == reason

    def test_the_lowest_priority_gives_first_and_then_the_newest(self) -> None:
        borrowers = (
            elastic("old", 1, staying=3),
            elastic("new", 2, staying=3),
            elastic("low", 0, staying=2, priority=-100),
        )
        for needed, expected in ((1, {"low": 1}), (3, {"low": 1, "new": 1}), (4, {"low": 1, "new": 1, "old": 2})):
            waiter = job("waiter", 9, namespace="b", missing=needed)
            assert ceilings(made(*borrowers, waiter, guarantees={"b": 4})) == expected

    def test_a_high_priority_does_not_protect_what_is_borrowed(self) -> None:
        found = made(
            elastic("borrower", 1, staying=3, priority=100),
            job("waiter", 2, namespace="b", missing=1, priority=-100),
            guarantees={"b": 1},
        )
        assert ceilings(found) == {"borrower": 2}

    def test_no_namespace_falls_below_its_own_guarantee(self) -> None:
        found = made(
            elastic("one", 1, namespace="a", staying=2),
            elastic("two", 2, namespace="a", staying=2),
            job("waiter", 3, namespace="b", missing=4),
            guarantees={"a": 3, "b": 4},
        )
        assert ceilings(found) == {"two": 1}

    def test_a_namespace_at_its_guarantee_waits_like_any_other(self) -> None:
        found = made(
            elastic("borrower", 1, staying=6),
            elastic("rich", 2, namespace="b", staying=2, missing=3),
            guarantees={"b": 2},
        )
        assert found == ReclaimPlan()

    def test_nobody_falls_below_the_executors_that_it_keeps(self) -> None:
        found = made(
            elastic("borrower", 1, staying=4, least=3),
            job("fixed", 2, staying=5),
            job("waiter", 3, namespace="b", missing=4),
            guarantees={"b": 4},
        )
        assert ceilings(found) == {"borrower": 3}

    def test_jobs_share_what_their_namespace_is_missing(self) -> None:
        found = made(
            elastic("borrower", 1, staying=9),
            job("first", 2, namespace="b", missing=2),
            job("second", 3, namespace="b", missing=2),
            guarantees={"b": 3},
        )
        assert (ceilings(found), found.claims) == ({"borrower": 6}, {"first": 2, "second": 1})

    def test_free_slots_and_those_on_their_way_count_first(self) -> None:
        waiter = job("waiter", 2, namespace="b", missing=3)
        found = made(elastic("borrower", 1, staying=6, leaving=1), waiter, guarantees={"b": 3}, free=1)
        assert (ceilings(found), found.claims) == ({"borrower": 5}, {"waiter": 2})
        assert made(elastic("borrower", 1, staying=6), waiter, guarantees={"b": 3}, free=3) == ReclaimPlan()

    def test_who_is_giving_back_keeps_its_ceiling_until_the_slots_have_arrived(self) -> None:
        waiter = job("waiter", 2, namespace="b", missing=2)
        found = made(elastic("borrower", 1, staying=4, leaving=2, capped=True), waiter, guarantees={"b": 2})
        assert (ceilings(found), found.claims, found.taken) == ({"borrower": 4}, {"waiter": 2}, {})
        served = job("waiter", 2, namespace="b", staying=2)
        assert made(elastic("borrower", 1, staying=4, capped=True), served, guarantees={"b": 2}) == ReclaimPlan()

    def test_what_is_no_longer_needed_may_stay(self) -> None:
        waiter = job("waiter", 2, namespace="b", missing=1)
        found = made(elastic("borrower", 1, staying=4, leaving=2, capped=True), waiter, guarantees={"b": 1})
        assert ceilings(found) == {"borrower": 5}

    def test_whom_spark_leaves_fewer_executors_gets_no_ceiling_for_it(self) -> None:
        waiter = job("waiter", 2, namespace="b", missing=2)
        found = made(elastic("idle", 1, staying=4, leaving=2), waiter, guarantees={"b": 2})
        assert (ceilings(found), found.claims) == ({}, {"waiter": 2})

    def test_slots_that_are_too_small_are_left_alone(self) -> None:
        waiter = job("waiter", 3, namespace="b", missing=1, size=LARGE)
        small, large = elastic("small", 2, staying=4), elastic("large", 1, staying=4, size=LARGE)
        assert ceilings(made(small, large, waiter, guarantees={"b": 1})) == {"large": 3}


class TestPriorities:
    def test_a_higher_priority_in_the_same_namespace_gets_executors_of_elastic_jobs(self) -> None:
        low, other = elastic("low", 1, namespace="a", staying=4), elastic("other", 2, namespace="b", staying=4)
        high = job("high", 3, namespace="a", priority=100, missing=2)
        found = made(low, other, high)
        assert (ceilings(found), found.claims) == ({"low": 2}, {"high": 2})
        assert found.ceilings[JobId("low")].reason == "job high has a higher priority (100), and waits"

    def test_an_equal_priority_gets_none(self) -> None:
        assert made(elastic("one", 1, staying=4), job("two", 2, missing=2)) == ReclaimPlan()

    def test_what_the_guarantee_gives_is_not_given_twice(self) -> None:
        found = made(
            elastic("borrower", 1, staying=6),
            elastic("low", 2, namespace="b", staying=2),
            job("high", 3, namespace="b", priority=100, missing=2),
            guarantees={"b": 3},
        )
        assert (ceilings(found), found.claims) == ({"borrower": 5, "low": 1}, {"high": 2})
        found = made(
            elastic("low", 2, namespace="b", staying=2),
            job("high", 3, namespace="b", priority=100, missing=2),
            guarantees={"b": 4},
            free=2,
        )
        assert found == ReclaimPlan(), "two free slots are enough"

    def test_within_a_full_namespace_only_its_own_jobs_can_help(self) -> None:
        low, other = elastic("low", 1, namespace="a", staying=4), elastic("other", 2, staying=4, leaving=2)
        high = job("high", 3, namespace="a", priority=100, missing=2)
        assert ceilings(made(low, other, high, maximum=4, free=2)) == {"low": 2}


class TestFixedNumbers:
    WAITER = job("waiter", 9, namespace="b", missing=5)

    def test_they_give_nothing_back_by_default(self) -> None:
        fixed = job("fixed", 1, staying=4, least=1, priority=-100)
        assert made(fixed, self.WAITER, guarantees={"b": 5}) == ReclaimPlan()

    def test_they_give_back_last_and_only_for_a_higher_priority(self) -> None:
        fixed = job("fixed", 1, staying=4, least=1, priority=-100)
        equal = job("equal", 2, staying=4, least=1)
        movable = elastic("movable", 3, staying=3, priority=0)
        found = made(fixed, equal, movable, self.WAITER, guarantees={"b": 4}, preemption=Preemption.EXECUTORS)
        assert ceilings(found) == {"movable": 1, "fixed": 2}

    def test_nobody_gives_back_where_preemption_is_off(self) -> None:
        borrower = elastic("borrower", 1, staying=4)
        assert made(borrower, self.WAITER, guarantees={"b": 5}, preemption=Preemption.NONE) == ReclaimPlan()


class TestWholeJobs:
    """They are put back to waiting if nothing else is enough."""

    def test_the_lowest_priority_is_put_back_once_all_have_only_their_minimum(self) -> None:
        low, lowest = (
            elastic(name, 1, staying=2, priority=priority) for name, priority in (("low", -1), ("least", -2))
        )
        equal = elastic("equal", 3, staying=2)
        found = jobs_put_back(low, lowest, equal, job("waiter", 9, namespace="b", missing=4), guarantees={"b": 4})
        assert ceilings(found) == {"low": 1, "least": 0, "equal": 1}
        assert [name for name, order in found.ceilings.items() if order.whole] == ["least"]
        assert found.claims == {"waiter": 4}

    def test_no_job_is_put_back_unless_the_settings_say_so(self) -> None:
        fixed = job("fixed", 1, staying=1, least=1, priority=-100)
        waiter = job("waiter", 9, namespace="b", missing=1)
        assert made(fixed, waiter, guarantees={"b": 1}, preemption=Preemption.EXECUTORS) == ReclaimPlan()
        assert ceilings(jobs_put_back(fixed, waiter, guarantees={"b": 1})) == {"fixed": 0}

    def test_a_gang_is_put_back_as_a_whole_or_not_at_all(self) -> None:
        gang = job("gang", 1, namespace="a", staying=3, least=1, gang=True, priority=-100)
        waiter = job("waiter", 9, namespace="b", missing=1)
        found = jobs_put_back(gang, waiter, guarantees={"b": 1})
        assert (ceilings(found), found.claims) == ({"gang": 0}, {"waiter": 1})
        assert jobs_put_back(gang, waiter, guarantees={"a": 1, "b": 1}) == ReclaimPlan(), "it needs its guarantee"

    def test_a_gang_that_leaves_is_not_called_back_for_what_is_too_much(self) -> None:
        gang = job("gang", 1, leaving=3, least=1, gang=True, priority=-100, capped=True, put_back=True)
        waiter = job("waiter", 9, namespace="b", missing=1)
        found = jobs_put_back(gang, waiter, guarantees={"b": 1})
        assert found.ceilings[JobId("gang")].whole
        assert found.taken == {}

    def test_a_gang_some_of_whose_executors_still_stay_goes_on_being_put_back_as_a_whole(self) -> None:
        """Found by a simulated cluster: the gang kept a part, once slots for the claim were on their way."""
        gang = job("gang", 1, staying=1, leaving=5, least=1, gang=True, priority=-100, capped=True, put_back=True)
        waiter = job("waiter", 9, namespace="b", missing=3)
        found = jobs_put_back(gang, waiter, guarantees={"b": 3})
        assert (found.ceilings[JobId("gang")].ceiling, found.ceilings[JobId("gang")].whole) == (0, True)

    def test_within_a_namespace_only_a_job_without_any_slot_has_others_put_back(self) -> None:
        """Otherwise the other one would come first for its first slot, and slots would go to and fro."""
        low = job("low", 1, namespace="a", staying=1, least=1)
        first = job("high", 2, namespace="a", priority=100, missing=1)
        assert ceilings(jobs_put_back(low, first)) == {"low": 0}
        assert jobs_put_back(low, job("high", 2, namespace="a", priority=100, missing=1, staying=1)) == ReclaimPlan()

    @pytest.mark.parametrize("facts", [{"priority": 0}, {"least": 0}])
    def test_some_jobs_are_never_put_back(self, facts: Mapping[str, Any]) -> None:
        """One of equal priority, and one whose executors cannot hand over."""
        low = job("low", 1, **{"staying": 1, "least": 1, "priority": -100, **facts})
        assert jobs_put_back(low, job("waiter", 9, namespace="b", missing=1), guarantees={"b": 1}) == ReclaimPlan()

    def test_one_that_was_put_back_a_short_time_ago_is_spared_by_preference_but_not_by_a_guarantee(self) -> None:
        """Found by a simulated cluster: a gang failed for want of the slots that its namespace is guaranteed."""
        low = job("low", 1, namespace="a", staying=1, least=1, priority=-100, spared=True)
        assert jobs_put_back(low, job("waiter", 9, namespace="a", missing=1)) == ReclaimPlan()
        found = jobs_put_back(low, job("waiter", 9, namespace="b", missing=1), guarantees={"b": 1})
        assert ceilings(found) == {"low": 0}


class TestGangs:
    def test_a_gang_gives_nothing_back(self) -> None:
        gang = elastic("gang", 1, staying=4, gang=True)
        waiter = job("waiter", 2, namespace="b", missing=1)
        assert made(gang, waiter, guarantees={"b": 1}) == ReclaimPlan()

    def test_a_gang_gets_all_that_it_needs_or_nothing(self) -> None:
        borrower = elastic("borrower", 1, staying=4)
        for missing, guarantee, expected in ((3, 3, {"borrower": 1}), (4, 4, {}), (3, 2, {})):
            gang = job("gang", 2, namespace="b", missing=missing, gang=True)
            assert ceilings(made(borrower, gang, guarantees={"b": guarantee})) == expected

    def test_nothing_is_taken_for_a_gang_that_cannot_be_served_and_others_are(self) -> None:
        borrower = elastic("borrower", 1, staying=4)
        gang = job("gang", 2, namespace="b", missing=5, gang=True, priority=100)
        modest = job("modest", 3, namespace="b", missing=2)
        found = made(borrower, gang, modest, guarantees={"b": 5})
        assert (ceilings(found), found.claims) == ({"borrower": 2}, {"modest": 2})

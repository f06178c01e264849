"""What many jobs lack is said after one look at the accounts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from emberkeep.base.ids import JobId
from emberkeep.slots.ledger import DriverNeed
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.reclaim.terms import ReclaimTerms
from tests.unit.slots.test_slot_manager import Rig

pytestmark = pytest.mark.req("RES-3")

NEED = DriverNeed(memory_mb=1024, python="3.11")


def calls(work: Callable[[], object]) -> int:
    """Return how many Python functions ``work`` calls; each step of a generator counts."""
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


def waiting_jobs(rig: Rig, count: int) -> list[JobId]:
    """Add jobs of two namespaces and many priorities: half of them wait for a driver place, the others for slots."""
    added = []
    for number in range(count):
        namespace = ("a", "b")[number // 2 % 2]
        job_id = rig.job(2 * (number % 2), namespace=namespace, priority=number % 7)
        if number % 2 == 0:
            rig.slots.jobs.request_place(job_id, NEED, 1, 0.0)
        added.append(job_id)
    rig.match()
    return added


@pytest.mark.parametrize(
    "rig",
    [
        Rig,
        lambda: Rig(quotas=NamespaceLimits(slots=3, drivers=3)),
        lambda: Rig(reclaim=ReclaimTerms(guarantees={"a": 50})),
    ],
    ids=["plain", "quotas", "guarantees"],
)
def test_the_work_grows_with_the_jobs_and_not_with_their_square(rig: Callable[[], Rig]) -> None:
    made = {}
    for count in (100, 400):
        with_jobs = rig()
        with_jobs.add("tm-1")
        jobs = waiting_jobs(with_jobs, count)
        made[count] = calls(lambda: with_jobs.slots.missing_of(jobs))  # noqa: B023 - called at once
    assert made[400] < 5 * made[100]


def test_each_job_is_told_the_same_as_alone() -> None:
    rig = Rig(quotas=NamespaceLimits(slots=20, drivers=20))
    rig.add("tm-1")
    jobs = waiting_jobs(rig, 40)
    found = rig.slots.missing_of(jobs)
    assert found == {job_id: rig.slots.missing(job_id) for job_id in jobs}
    assert len(set(found.values())) > 10, "they differ"
    assert rig.slots.missing_of([JobId("f" * 32)]) == {JobId("f" * 32): ""}

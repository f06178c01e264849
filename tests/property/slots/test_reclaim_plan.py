"""Whatever jobs hold, lack and can give back: what a plan must never do, and what it must reach."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberkeep.base.ids import JobId
from emberkeep.slots.model import ResourceProfile, RuntimeVersions
from emberkeep.slots.reclaim.plan import plan
from emberkeep.slots.reclaim.standing import JobStanding, ReclaimPlan, SlotSize
from emberkeep.slots.reclaim.terms import Preemption, ReclaimTerms
from tests.campaign import examples

pytestmark = [pytest.mark.campaign, pytest.mark.req("RES-5")]

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SIZES = tuple(SlotSize(ResourceProfile(cores=n, memory_mb=1024 * n), RUNTIME) for n in (1, 2))
NAMESPACES = ("", "a", "b", "c")


@st.composite
def standings(draw: st.DrawFn) -> tuple[JobStanding, ...]:
    number = draw(st.integers(1, 6))
    sizes = st.sampled_from(SIZES if draw(st.booleans()) else SIZES[:1])
    return tuple(
        JobStanding(
            job_id=JobId(f"job-{order}"),
            order=order,
            size=draw(sizes),
            namespace=draw(st.sampled_from(NAMESPACES)),
            priority=draw(st.sampled_from((-100, 0, 100))),
            gang=draw(st.integers(0, 5)) == 0,
            staying=draw(st.integers(0, 5)),
            leaving=draw(st.sampled_from((0, 0, 1, 2))),
            elsewhere=draw(st.sampled_from((0, 0, 0, 1))),
            missing=draw(st.sampled_from((0, 0, 1, 2, 5))),
            least=draw(st.integers(0, 3)),
            elastic=draw(st.booleans()),
            capped=draw(st.booleans()),
            put_back=draw(st.booleans()),
            spared=draw(st.integers(0, 3)) == 0,
        )
        for order in range(number)
    )


TERMS = st.builds(
    ReclaimTerms,
    guarantees=st.dictionaries(st.sampled_from(NAMESPACES[1:]), st.integers(1, 6)),
    maximum=st.sampled_from((0, 0, 6)),
    preemption=st.sampled_from(Preemption),
)


def kept_by(jobs: tuple[JobStanding, ...]) -> dict[str, int]:
    kept: dict[str, int] = {}
    for job in jobs:
        kept[job.namespace] = kept.get(job.namespace, 0) + job.kept
    return kept


@settings(max_examples=examples(400), deadline=None)
@given(jobs=standings(), terms=TERMS, free=st.sampled_from((0, 0, 0, 1, 3)))
def test_a_plan_takes_only_what_it_may(jobs: tuple[JobStanding, ...], terms: ReclaimTerms, free: int) -> None:
    found = plan(jobs, terms, lambda _: free)
    by_id = {job.job_id: job for job in jobs}
    if terms.preemption is Preemption.NONE:
        assert found == ReclaimPlan()
    need = sum(job.missing for job in jobs)
    parts = {name: count for name, count in found.taken.items() if not by_id[name].gang}
    assert sum(parts.values()) <= need, "nothing is reclaimed beyond need"
    for name, count in found.claims.items():
        assert 0 < count <= by_id[name].missing
    for name, count in found.taken.items():
        giver = by_id[name]
        assert giver.least
        assert found.ceilings[name].ceiling >= giver.kept - count
        if giver.gang or giver.staying - count < giver.least:
            _check_put_back(giver, count, jobs, terms, found)
        else:
            assert giver.elastic or terms.preemption.takes_from_fixed
    taken_by_claims = sum(found.claims.values())
    assert sum(parts.values()) <= taken_by_claims, "what is taken is claimed by somebody"
    _check_namespaces(jobs, terms, found)
    for name in found.claims:
        claimant = by_id[name]
        if claimant.gang and not claimant.kept:
            # What others leave anyhow is counted, but not claimed by a job that is only preferred to others.
            left = sum(job.leaving for job in jobs if job.job_id != name)
            on_their_way = free + left + found.claims[name]
            assert on_their_way >= claimant.missing, "a gang gets everything or nothing"
    for name in found.ceilings:
        assert found.taken.get(name) or by_id[name].capped


def _check_put_back(
    giver: JobStanding, count: int, jobs: tuple[JobStanding, ...], terms: ReclaimTerms, found: ReclaimPlan
) -> None:
    """A job gives more than its minimum only to jobs of a higher priority, and a gang gives all or nothing."""
    assert terms.preemption is Preemption.JOBS
    assert not giver.spared
    assert count == giver.staying or not giver.gang
    for_whom = [job for job in jobs if found.claims.get(job.job_id) and job.priority > giver.priority]
    assert for_whom
    within = any(job.namespace == giver.namespace for job in for_whom)
    assert not giver.gang or within or kept_by(jobs)[giver.namespace] - count >= terms.guarantee(giver.namespace)


def _check_namespaces(jobs: tuple[JobStanding, ...], terms: ReclaimTerms, found: ReclaimPlan) -> None:
    """A namespace at or below its guarantee gives to its own jobs only, and none falls below its guarantee."""
    claims: dict[str, int] = {}
    for job in jobs:
        claims[job.namespace] = claims.get(job.namespace, 0) + found.claims.get(job.job_id, 0)
    for namespace, kept in kept_by(jobs).items():
        # A gang gives more than is needed, because it could do nothing with the rest; see ``_check_put_back``.
        taken = sum(found.taken.get(job.job_id, 0) for job in jobs if job.namespace == namespace and not job.gang)
        lost = max(0, taken - claims[namespace])  # at least so many go to others
        assert kept - lost >= min(kept, terms.guarantee(namespace))


@settings(max_examples=examples(300), deadline=None)
@given(jobs=standings(), terms=TERMS)
def test_a_guarantee_is_reached_where_enough_is_borrowed(jobs: tuple[JobStanding, ...], terms: ReclaimTerms) -> None:
    """One job that waits, in a namespace of its own; all others are elastic and have its size."""
    others = tuple(
        dataclasses.replace(job, size=SIZES[0], elastic=True, gang=False, missing=0, namespace="")
        for job in jobs
        if job.least
    )
    waiter = JobStanding(job_id=JobId("waiter"), order=99, size=SIZES[0], namespace="z", missing=4)
    terms = dataclasses.replace(terms, guarantees={"z": 3}, preemption=Preemption.ELASTIC, maximum=0)
    found = plan((*others, waiter), terms, lambda _: 0)
    borrowed = sum(job.leaving + max(0, job.staying - job.least) for job in others)
    assert found.claims.get(waiter.job_id, 0) == min(3, borrowed)


@settings(max_examples=examples(300), deadline=None)
@given(jobs=standings(), terms=TERMS)
def test_carrying_a_plan_out_ends(jobs: tuple[JobStanding, ...], terms: ReclaimTerms) -> None:
    """Givers obey, slots arrive, and claimants get them: then no job has to give back what another one gave.

    Jobs want again what they gave, so this also shows that slots do not go to and fro.
    """
    jobs = tuple(dataclasses.replace(job, size=SIZES[0], leaving=0, capped=False, gang=False) for job in jobs)
    wanted = {job.job_id: job.kept + job.missing for job in jobs}
    moved = 0
    for _ in range(20):
        found = plan(jobs, terms, lambda _: 0)
        if not found.taken:
            break
        moved += sum(found.taken.values())
        jobs = tuple(
            dataclasses.replace(
                job,
                staying=job.staying - found.taken.get(job.job_id, 0) + found.claims.get(job.job_id, 0),
            )
            for job in jobs
        )
        jobs = tuple(dataclasses.replace(job, missing=max(0, wanted[job.job_id] - job.kept)) for job in jobs)
    else:
        pytest.fail(f"slots still move after 20 rounds: {moved} in all")

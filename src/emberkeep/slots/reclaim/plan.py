"""Decides which jobs give slots back, and for whom. Pure: the same facts lead to the same plan.

Two kinds of jobs that lack slots have a *claim* to slots that other jobs hold:

1. Jobs of a namespace that holds fewer slots than it is guaranteed, for what is missing of the guarantee. Jobs of
   namespaces that hold more than their guarantee give slots back, whatever their priority.
2. Jobs whose priority is higher than that of other jobs in their namespace. These give slots back.

Slots that are about to become free count first, so nothing is reclaimed beyond what is needed. The jobs that give back
are those with the lowest priority, among equals the newest; jobs with a fixed number of executors come last, if at all.
No job gives back more than it can, no namespace falls below its guarantee for another one, and a gang gives back
nothing.

If that is not enough, and the settings allow it, whole jobs are *put back*: they give all that they hold, gangs
included. That happens only for a guarantee, or for a job without any slot, and only to jobs of a lower priority: these
come after the job for which they were put back, so they do not get the slots back at once.

A plan is made anew each time, from what is true now. While slots are on their way, those who give them keep their
ceilings; otherwise they would ask for the same slots again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from emberkeep.base.ids import JobId
from emberkeep.slots.model import Reclaim
from emberkeep.slots.reclaim.standing import JobStanding, ReclaimPlan, SlotSize
from emberkeep.slots.reclaim.terms import Preemption, ReclaimTerms


@dataclass(frozen=True)
class _Claim:
    job: JobStanding
    slots: int
    reason: str
    within: bool  # only jobs of the same namespace with a lower priority give something back for it


class _Book:
    """What was claimed and taken so far."""

    def __init__(self, jobs: Sequence[JobStanding], terms: ReclaimTerms) -> None:
        self.taken = Counter[JobId]()
        self.arriving = Counter[JobId]()  # slots on their way that were counted, by the job that holds them now
        self.claims = Counter[JobId]()
        self.served = Counter[JobId]()  # slots that each job gets, free ones included
        self.reasons: dict[JobId, str] = {}
        self.put_back: set[JobId] = set()
        self.free = 0  # free slots that were counted
        kept = Counter[str]()
        for job in jobs:
            kept[job.namespace] += job.kept
        self.surplus = {namespace: count - terms.guarantee(namespace) for namespace, count in kept.items()}

    def can_give(self, job: JobStanding) -> int:
        return 0 if job.gang or not job.least else max(0, job.staying - self.taken[job.job_id] - job.least)


def plan(jobs: Sequence[JobStanding], terms: ReclaimTerms, free: Callable[[SlotSize], int]) -> ReclaimPlan:
    """Return who gives slots back now. ``free``: how many slots of a size are free where slots may be given."""
    if terms.preemption is Preemption.NONE:
        return ReclaimPlan()
    planner = _Planner(jobs, terms, free)
    for job in sorted(jobs, key=lambda job: (-job.priority, job.kept, job.order)):
        if job.missing:
            planner.guaranteed(job)
    for job in sorted(jobs, key=lambda job: (-job.priority, job.order)):
        if job.missing:
            planner.preferred(job)
    return planner.result()


class _Planner:
    def __init__(self, jobs: Sequence[JobStanding], terms: ReclaimTerms, free: Callable[[SlotSize], int]) -> None:
        self._jobs = jobs
        self._terms = terms
        self._free = free
        self._book = _Book(jobs, terms)
        self._promised = Counter[str]()  # slots that namespaces get by their guarantees
        # Elastic jobs before others, then the lowest priority, then the newest.
        self._givers = sorted(
            (job for job in jobs if job.least and not job.gang),
            key=lambda job: (not job.elastic, job.priority, -job.order),
        )

    def guaranteed(self, job: JobStanding) -> None:
        """Claim what is missing of the guarantee of the job's namespace."""
        claim = self._guarantee_claim(job)
        if claim is None:
            return
        if job.gang and not job.kept and claim.slots < job.missing:
            return  # it would get nothing for a part of what it needs
        served = self._serve(claim, whole=job.gang and not job.kept)
        self._promised[job.namespace] += served

    def _guarantee_claim(self, job: JobStanding) -> _Claim | None:
        guarantee = self._terms.guarantee(job.namespace)
        below = -self._book.surplus.get(job.namespace, -guarantee) - self._promised[job.namespace]
        count = min(job.missing, below)
        if count <= 0:
            return None
        slots = "1 slot" if guarantee == 1 else f"{guarantee} slots"
        reason = f"namespace {job.namespace!r} has less than the {slots} it is guaranteed, and job {job.job_id} waits"
        return _Claim(job, count, reason, within=False)

    def preferred(self, job: JobStanding) -> None:
        """Claim what jobs of a lower priority in the same namespace can give back."""
        missing = job.missing - self._book.served[job.job_id]
        if missing > 0:
            reason = f"job {job.job_id} has a higher priority ({job.priority}), and waits"
            self._serve(_Claim(job, missing, reason, within=True), whole=job.gang and not job.kept)

    def _serve(self, claim: _Claim, *, whole: bool) -> int:
        """Serve a claim as far as possible; a ``whole`` one fully or not at all. Return how many slots it gets."""
        before = deepcopy(self._book) if whole else self._book
        open_slots = claim.slots - self._take_free(claim)
        open_slots -= self._take_arriving(claim, open_slots)
        open_slots -= self._take_from_givers(claim, open_slots)
        open_slots -= self._put_back(claim, open_slots)
        if whole and open_slots:
            self._book = before
            return 0
        served = claim.slots - open_slots
        self._book.served[claim.job.job_id] += served
        return served

    def _take_free(self, claim: _Claim) -> int:
        """Count free slots, which the job gets without anybody's help. Its quota may forbid that within a namespace."""
        if claim.within and self._is_full(claim.job.namespace):
            return 0
        count = max(0, min(claim.slots, self._free(claim.job.size) - self._book.free))
        self._book.free += count
        return count

    def _is_full(self, namespace: str) -> bool:
        """True if the namespace gets no further slot before it gives one back."""
        limit = self._terms.maximum
        used = self._book.surplus.get(namespace, 0) + self._terms.guarantee(namespace)
        return bool(limit and namespace) and used >= limit

    def _take_arriving(self, claim: _Claim, wanted: int) -> int:
        """Count slots that become free soon.

        A job that is only preferred to others does not come first for a slot that none of them gives.
        """
        only = claim.job.namespace if claim.within and self._is_full(claim.job.namespace) else None
        total = 0
        for giver in self._jobs:
            left = giver.leaving - self._book.arriving[giver.job_id]
            if left <= 0 or not giver.size.serves(claim.job.size):
                continue
            if only is not None and giver.namespace != only:
                continue
            count = min(left, wanted - total)
            if count > 0:
                self._book.arriving[giver.job_id] += count
                if not claim.within or giver.job_id == claim.job.job_id or _comes_after(giver, claim.job):
                    self._note(claim, giver, count)
                total += count
        return total

    def _take_from_givers(self, claim: _Claim, wanted: int) -> int:
        total = 0
        for giver in self._givers_for(claim):
            most = self._book.can_give(giver)
            if not claim.within:
                most = min(most, self._book.surplus[giver.namespace])
            count = min(most, wanted - total)
            if count > 0:
                self._book.taken[giver.job_id] += count
                self._book.surplus[giver.namespace] -= 0 if claim.within else count
                self._note(claim, giver, count)
                total += count
        return total

    def _givers_for(self, claim: _Claim) -> Iterator[JobStanding]:
        job = claim.job
        for giver in self._givers:
            if giver.job_id == job.job_id or not giver.size.serves(job.size):
                continue
            if not giver.elastic and (not self._terms.preemption.takes_from_fixed or giver.priority >= job.priority):
                continue
            if claim.within and not _comes_after(giver, job):
                continue
            yield giver

    def _put_back(self, claim: _Claim, wanted: int) -> int:
        """Take whole jobs of a lower priority, the lowest first. Return how many slots of theirs the claim uses."""
        job, book = claim.job, self._book
        if self._terms.preemption is not Preemption.JOBS or (claim.within and job.kept):
            return 0
        total = 0
        for giver in sorted(self._jobs, key=lambda each: (each.priority, -each.order)):
            left = giver.staying - book.taken[giver.job_id]
            most = left if claim.within else min(left, book.surplus[giver.namespace])
            count = min(most, wanted - total)
            if count <= 0 or not _may_be_put_back(giver, claim):
                continue
            if giver.gang:
                if most < left:
                    continue  # it would keep a part, with which it can do nothing
                given = left
            else:
                given = count
            book.taken[giver.job_id] += given
            book.surplus[giver.namespace] -= 0 if claim.within else given
            if given == left and not giver.elsewhere:
                book.put_back.add(giver.job_id)
            self._note(claim, giver, count)
            total += count
        return total

    def _note(self, claim: _Claim, giver: JobStanding, count: int) -> None:
        self._book.claims[claim.job.job_id] += count
        if giver.job_id != claim.job.job_id:
            self._book.reasons.setdefault(giver.job_id, claim.reason)

    def result(self) -> ReclaimPlan:
        book, ceilings = self._book, {}
        for job in self._jobs:
            taken, reason = book.taken[job.job_id], book.reasons.get(job.job_id)
            if reason is not None and (taken or job.capped):
                whole = job.job_id in book.put_back or (job.put_back and (job.gang or not job.kept))
                if whole and job.gang:
                    ceiling = 0  # it could do nothing with what is not needed
                else:
                    unneeded = job.leaving - book.arriving[job.job_id] if job.capped else 0
                    ceiling = job.kept + unneeded - taken
                ceilings[job.job_id] = Reclaim(ceiling=ceiling, reason=reason, whole=whole and not ceiling)
        return ReclaimPlan(ceilings, dict(book.claims), dict(book.taken))


def _comes_after(giver: JobStanding, job: JobStanding) -> bool:
    """True if the other ``job`` has a higher priority in the same namespace."""
    return giver.namespace == job.namespace and giver.priority < job.priority


def _may_be_put_back(giver: JobStanding, claim: _Claim) -> bool:
    job = claim.job
    if giver.job_id == job.job_id or giver.priority >= job.priority or not giver.size.serves(job.size):
        return False
    if not giver.least or (giver.spared and claim.within) or (giver.gang and giver.elsewhere):
        return False
    return not claim.within or giver.namespace == job.namespace

"""Keeps the plan of who gives slots back up to date, from the accounts of the jobs. Part of the SlotManager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from emberkeep.base.ids import JobId
from emberkeep.slots.ledger import Gives, JobAccount
from emberkeep.slots.model import Reclaim, slots_are
from emberkeep.slots.priorities.gangs import KeptSlots
from emberkeep.slots.reclaim.above_quota import AboveQuota
from emberkeep.slots.reclaim.plan import plan
from emberkeep.slots.reclaim.standing import JobStanding, ReclaimPlan, SlotSize
from emberkeep.slots.reclaim.terms import GUARANTEES_KEY, ReclaimTerms
from emberkeep.slots.shelves import Shelves

LACKS_FOR = 2.0  # seconds for which a job must lack slots: others do not give back for a short lack
SPARED_FOR = 600.0  # seconds for which a job that was put back keeps its next slots


class Reclaimer:
    """Sets the ceilings and claims of jobs. ``jobs``, ``shelves`` and ``kept`` belong to the SlotManager.

    A new leader learns from JobMasters which ceilings they follow. It lifts none before ``settles`` seconds have
    passed, because the job for which the slots are given back may not have registered yet.
    """

    def __init__(
        self,
        terms: ReclaimTerms,
        jobs: Mapping[JobId, JobAccount],
        shelves: Shelves,
        kept: KeptSlots,
        *,
        settles: float,
    ) -> None:
        self.terms = terms
        self._jobs = jobs
        self._shelves = shelves
        self._kept = kept
        self._settles = settles
        self._above_quota = AboveQuota(terms.maximum, lasts=settles)
        self._began: float | None = None
        self._is_planned = False  # some job has a ceiling or a claim

    def take(self, job_id: JobId, attempt: int, gives: Gives, follows: Reclaim | None, now: float) -> None:
        """Note what a JobMaster reports: what its attempt can give back, and which ceiling it ``follows``."""
        job = self._jobs.get(job_id)
        if job is None or attempt != job.attempt or job.over:
            return
        job.gives = gives
        if follows is not None and job.reclaim is None and self._is_settling(now):
            job.reclaim, self._is_planned = follows, True

    def order_for(self, job_id: JobId) -> Reclaim | None:
        """Return what the job is to give back; None: nothing."""
        job = self._jobs.get(job_id)
        return None if job is None else job.reclaim

    def _is_settling(self, now: float) -> bool:
        if self._began is None:
            self._began = now
        return now - self._began < self._settles

    def review(self, lacking: Iterable[JobAccount], now: float) -> None:
        """Plan anew. ``lacking``: the jobs that lack slots."""
        is_settling = self._is_settling(now)
        surplus = self._above_quota.review(self._jobs.values(), now, is_settling=is_settling)
        if not any(job.lacks_since is not None for job in lacking) and not self._is_planned and not surplus:
            return
        standings = [found for job in self._jobs.values() if (found := self._standing(job, now)) is not None]
        planned = plan(standings, self.terms, self._free)
        self._carry_out(planned, surplus, is_settling=is_settling)

    def _carry_out(self, planned: ReclaimPlan, surplus: Mapping[JobId, Reclaim], *, is_settling: bool) -> None:
        self._is_planned = False
        for job in self._jobs.values():
            before, after = job.reclaim, _lower(planned.ceilings.get(job.job_id), surplus.get(job.job_id))
            if after is None and (is_settling or _is_half_gone(job)):
                after = before
            elif after is not None and before is not None and _limit(after) == _limit(before):
                after = before  # so that the reason stays the same
            job.was_put_back |= after is not None and after.whole
            job.reclaim, job.claim = after, planned.claims.get(job.job_id, 0)
            self._is_planned |= after is not None or job.claim > 0

    def _standing(self, job: JobAccount, now: float) -> JobStanding | None:
        """Return what is known of a job; None if it needs no slots."""
        if job.kept and not job.requirements:
            return self._restarting(job)
        if not job.requirements:
            return None
        requirement = job.wants[0].requirement if job.wants else job.requirements[0]
        here = {allocation for allocation, member in job.held.items() if member.stays_open}
        leaving = job.gives.leaving & here
        waits = job.lacks_since is not None and now - job.lacks_since >= LACKS_FOR and self._may_claim(job, now)
        return JobStanding(
            job_id=job.job_id,
            order=job.order,
            size=SlotSize(requirement.profile, requirement.runtime),
            namespace=job.namespace,
            priority=job.priority,
            gang=job.gang,
            staying=len(here) - len(leaving),
            leaving=len(leaving),
            elsewhere=job.elsewhere + len(job.held) - len(here),
            missing=sum(want.missing for want in job.wants) if waits else 0,
            least=job.gives.least if job.is_described else 0,  # 0: it gives nothing back
            elastic=job.gives.elastic,
            capped=job.reclaim is not None,
            put_back=job.reclaim is not None and job.reclaim.whole,
            spared=now < job.spared_until,
        )

    @staticmethod
    def _restarting(job: JobAccount) -> JobStanding | None:
        """Return the standing of a job that restarts: it keeps slots, and can give none back before it is up again."""
        found = next(((each, member) for key, member in job.kept.items() if (each := member.slot(key))), None)
        if found is None:
            return None
        allocation, member = found
        return JobStanding(
            job_id=job.job_id,
            order=job.order,
            size=SlotSize(allocation.profile, member.info.runtime),
            namespace=job.namespace,
            priority=job.priority,
            gang=job.gang,
            elsewhere=len(job.kept),
        )

    def served(self, job: JobAccount, now: float) -> None:
        """Note that a job gets a slot. One that was put back is spared for a while, so that it gets something done."""
        if job.was_put_back and (job.reclaim is None or not job.reclaim.whole):
            job.was_put_back, job.spared_until = False, now + SPARED_FOR

    def _may_claim(self, job: JobAccount, now: float) -> bool:
        """True unless the job is a gang for which free slots could not be kept now."""
        return not job.gang or bool(job.held) or self._kept.may_keep_for(job, now)

    def _free(self, size: SlotSize) -> int:
        shelf = self._shelves.by_runtime.get(size.runtime)
        if shelf is None:
            return 0
        return sum(member.capacity(size.profile) for member in shelf.members if member.stays_open)

    def entitled(self) -> Entitlements:
        """Return what is missing of the guarantees now."""
        return Entitlements(self.terms, self._jobs.values())

    def said_of(self, job: JobAccount, entitled: Entitlements) -> str:
        """Return a suffix for the reason why a job waits; "" if there is nothing to say. ``entitled``: now."""
        texts = []
        if job.claim:
            texts.append(f"{slots_are(job.claim)} being given back for it by other jobs")
        guarantee = self.terms.guarantee(job.namespace)
        if job.wants and guarantee and (left := entitled.left(job)):
            texts.append(
                f"namespace {job.namespace!r} has {guarantee - left} of the {guarantee} slots that it is guaranteed "
                f"({GUARANTEES_KEY})"
            )
        return "".join(f"; {text}" for text in texts)


def _is_half_gone(job: JobAccount) -> bool:
    """True if a gang is being put back. It goes as a whole, because it could do nothing with the rest."""
    return job.gang and bool(job.held) and job.reclaim is not None and job.reclaim.whole


def _lower(one: Reclaim | None, other: Reclaim | None) -> Reclaim | None:
    """Return the one that leaves fewer slots."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda reclaim: reclaim.ceiling)


def _limit(reclaim: Reclaim) -> tuple[int, bool]:
    return reclaim.ceiling, reclaim.whole


class Entitlements:
    """What is missing of the guarantee of each namespace, in one round of matching."""

    def __init__(self, terms: ReclaimTerms, jobs: Iterable[JobAccount]) -> None:
        self._left = dict(terms.guarantees)
        if self._left:
            for job in jobs:
                if job.namespace in self._left:
                    self._left[job.namespace] -= job.uses

    def left(self, job: JobAccount) -> int:
        """Return how many slots the job's namespace is missing."""
        return max(0, self._left.get(job.namespace, 0))

    def take(self, job: JobAccount) -> None:
        """Count a slot that the job gets."""
        if job.namespace in self._left:
            self._left[job.namespace] -= 1

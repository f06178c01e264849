"""What namespaces have to give back because they have more slots than their quota.

Slots that were thought lost come back: a task manager that was away still holds them, or a blocked node is open again.
By then their job has replacements, so that its namespace has more than its quota. The plan reclaims slots for jobs that
wait, and perhaps none waits for these. A quota that was lowered takes nothing from anybody: what a namespace has until
the leader has settled is its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from emberkeep.base.ids import JobId
from emberkeep.slots.ledger import JobAccount
from emberkeep.slots.model import Reclaim
from emberkeep.slots.namespace_quotas import SLOTS_KEY


class AboveQuota:
    """Watches what namespaces use. ``maximum``: slots of each namespace; 0: no limit.

    ``lasts``: seconds for which a namespace must be above its quota. For a moment, slots of a task manager that comes
    back are counted twice, by its own report and by its job's.
    """

    def __init__(self, maximum: int, *, lasts: float) -> None:
        self._maximum = maximum
        self._lasts = lasts
        self._allowed: dict[str, int] = {}  # by namespace above the quota: what it may keep
        self._since: dict[str, float] = {}  # by namespace that has more: since when

    def review(self, jobs: Iterable[JobAccount], now: float, *, is_settling: bool) -> dict[JobId, Reclaim]:
        """Return the ceilings of jobs that have to give slots back."""
        if not self._maximum:
            return {}
        limited = [job for job in jobs if job.namespace]
        used = Counter[str]()
        for job in limited:
            used[job.namespace] += job.uses
        self._note(used, now, is_settling=is_settling)
        ceilings: dict[JobId, Reclaim] = {}
        for namespace, since in self._since.items():
            if now - since >= self._lasts:
                members = [job for job in limited if job.namespace == namespace]
                ceilings |= self._shared_out(members, used[namespace] - self._limit(namespace), used[namespace])
        return ceilings

    def _limit(self, namespace: str) -> int:
        return self._allowed.get(namespace, self._maximum)

    def _note(self, used: Counter[str], now: float, *, is_settling: bool) -> None:
        if is_settling:
            self._allowed = {
                namespace: max(count, self._limit(namespace))
                for namespace, count in used.items()
                if max(count, self._limit(namespace)) > self._maximum
            }
        else:  # what was given back once is not theirs any longer
            self._allowed = {
                namespace: min(limit, used[namespace])
                for namespace, limit in self._allowed.items()
                if used[namespace] > self._maximum
            }
        self._since = {
            namespace: self._since.get(namespace, now)
            for namespace, count in used.items()
            if count > self._limit(namespace)
        }

    def _shared_out(self, jobs: list[JobAccount], surplus: int, used: int) -> dict[JobId, Reclaim]:
        """Ask elastic jobs first, then those of the lowest priority, among equals the newest."""
        reason = f"namespace {jobs[0].namespace!r} has {used} slots, and its quota is {self._maximum} ({SLOTS_KEY})"
        ceilings: dict[JobId, Reclaim] = {}
        for job in sorted(jobs, key=lambda job: (not job.gives.elastic, job.priority, -job.order)):
            count = min(surplus, _most(job))
            if count > 0:
                ceilings[job.job_id] = Reclaim(ceiling=job.uses - count, reason=reason)
                surplus -= count
        return ceilings


def _most(job: JobAccount) -> int:
    """Return how many slots the job can give back."""
    if job.gang or not job.is_described or not job.gives.least:
        return 0
    return max(0, job.uses - job.gives.least)

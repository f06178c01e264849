"""Which job comes next when a slot or a driver place is free. Pure.

1. Jobs that have restarted, until they have as many slots as were kept for them: no other job could have got these.
2. Jobs for which others give slots back, until they have as many.
3. Jobs of namespaces that hold fewer slots than they are guaranteed.
4. All others.

Within each of these groups:

1. Jobs without any slot, by priority. So each job gets a first slot before any job gets a second one.
2. Jobs that hold slots, by priority; among equals the one with the fewest slots.

Ties go to the earlier submission. A job that has waited without any slot for the patience counts as one of the highest
priority that waits. So new jobs, whatever their priority, cannot hold it back any longer.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.slots.ledger import JobAccount

Rank = tuple[int, bool, int, int, int]
"""The lowest rank is served first."""


def highest(jobs: Iterable[JobAccount]) -> int:
    """Return the highest priority of the jobs that wait."""
    return max((job.priority for job in jobs), default=0)


def slot_rank(job: JobAccount, now: float, patience: float, top: int, *, is_entitled: bool = False) -> Rank:
    """Return a job's rank for its next slot.

    ``top``: the highest priority of the jobs that lack slots. ``is_entitled``: its namespace has less than it is
    guaranteed.
    """
    priority = top if has_starved(job, now, patience) else job.priority
    group = 0 if comes_back(job, now) else 1 if job.claim else 2 if is_entitled else 3
    return group, bool(job.held), -priority, len(job.held), job.order


def comes_back(job: JobAccount, now: float) -> bool:
    """True if the job has restarted, and does not have as many slots yet as were kept for it."""
    return job.returning > 0 and now < job.kept_until


def has_starved(job: JobAccount, now: float, patience: float) -> bool:
    """True if the job has waited without any slot for the patience."""
    return not job.held and job.without_slot_since is not None and now - job.without_slot_since >= patience


def place_rank(job: JobAccount, now: float, patience: float, top: int) -> Rank:
    """Return the rank of a job that waits for a driver place. ``top``: the highest priority of those that wait.

    Among equals, jobs that have run before come first.
    """
    priority = top if now - job.need_since >= patience else job.priority
    return 0, False, -priority, int(job.attempt == 0), job.order


def said_ahead(count: int) -> str:
    """Return a suffix such as "; 2 jobs with a higher priority wait too" for a reason; "" for no jobs."""
    if not count:
        return ""
    return f"; {count} job{' with a higher priority waits' if count == 1 else 's with a higher priority wait'} too"

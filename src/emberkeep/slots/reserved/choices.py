"""On which task manager each job has its reserved standby: a warm driver that waits for its next attempt.

Part of the SlotManager. The task manager is on another node than the driver, so that both are not lost together. The
choice stays as long as the task manager can keep the standby and the driver runs elsewhere. It moves only while the job
runs a streaming query: before that, the job's attempt may be taking the standby, or may soon need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.slots.custom.amounts import fit
from emberkeep.slots.ledger import DriverNeed, JobAccount, Member
from emberkeep.slots.locality import StateIndex
from emberkeep.slots.matching import takes_drivers

RESERVED_STANDBYS = 64  # on one task manager


@dataclass(frozen=True)
class StandbyView:
    """A job's reserved standby. ``why_not``: why it is not ready; "" if it is.

    ``task_manager``: the one that keeps it; None while none keeps it.
    """

    task_manager: TaskManagerId | None
    why_not: str


class ReservedStandbys:
    """The choices, in ``JobAccount.standby_on``. ``members``, ``jobs`` and ``state`` belong to the SlotManager."""

    def __init__(
        self, members: Mapping[TaskManagerId, Member], jobs: Mapping[JobId, JobAccount], state: StateIndex
    ) -> None:
        self._members = members
        self._jobs = jobs
        self._state = state
        self._needs: dict[JobAccount, DriverNeed] = {}

    def want(self, job_id: JobId, need: DriverNeed) -> None:
        """Choose a task manager for the job's reserved standby while the job runs streaming queries."""
        self._needs[self._jobs[job_id]] = need

    def streams(self, job_id: JobId, attempt: int, checkpoints: tuple[str, ...]) -> None:
        """Note that this attempt runs streaming queries with these checkpoint locations."""
        job = self._jobs.get(job_id)
        if job is not None and attempt >= job.streams:
            job.streams, job.checkpoints = attempt, checkpoints

    def checkpoints(self, job_id: JobId) -> tuple[str, ...]:
        """Return the durable locations of the job's streaming queries, as far as they are known."""
        job = self._jobs.get(job_id)
        return () if job is None else job.checkpoints

    def wanted_at(self, task_manager: TaskManagerId) -> list[JobId]:
        """Return the jobs whose reserved standby this task manager keeps, in the order of their submission."""
        member = self._members.get(task_manager)
        jobs = [job for job in self._needs if job.standby_on is member and self._is_known(job)]
        return [job.job_id for job in sorted(jobs, key=lambda job: job.order)] if member is not None else []

    def keepers(self) -> frozenset[TaskManagerId]:
        """Return the task managers that keep a reserved standby of a job."""
        return frozenset(job.standby_on.info.id for job in self._needs if job.standby_on and self._is_known(job))

    def view(self, job_id: JobId) -> StandbyView | None:
        """Return a job's reserved standby; None if the job wants none."""
        job = self._jobs.get(job_id)
        need = None if job is None else self._needs.get(job)
        if job is None or need is None:
            return None
        member = job.standby_on
        if member is not None and self._is_registered(member):
            why_not = "its task manager has not reported it yet"
            return StandbyView(member.info.id, member.reserved_standbys.get(job_id, why_not))
        if job.streams < job.attempt or job.attempt == 0:
            return StandbyView(None, "the job's current attempt runs no streaming query yet")
        room = f"a driver place and {need.memory_mb} MiB of memory free"
        return StandbyView(None, f"no open task manager on another node keeps standby drivers and has {room}")

    def review(self) -> None:
        """Choose a task manager for each job that needs another one. Forget jobs that have ended."""
        for job in [job for job in self._needs if not self._is_known(job)]:
            del self._needs[job]
        there, reported = self._there(), self._reported()
        for job, need in self._needs.items():
            before = job.standby_on
            if before is None or not self._is_registered(before):
                job.standby_on = reported.get(job.job_id)
            if job.streams == job.attempt and not job.over and job.last_node:
                here = job.standby_on
                if here is None or not (here.stays_open and self._can_keep(here, job, need, there)):
                    job.standby_on = self._best(job, need, there)
            if job.standby_on is not before:
                there = self._there()

    def _there(self) -> dict[Member, list[JobAccount]]:
        """Return the jobs by the task manager that keeps their reserved standbys."""
        found: dict[Member, list[JobAccount]] = {}
        for job in self._needs:
            if job.standby_on is not None:
                found.setdefault(job.standby_on, []).append(job)
        return found

    def _reported(self) -> dict[JobId, Member]:
        """Return for each job the task manager that has its reserved standby, as an earlier leader has chosen."""
        reports = [
            (why_not != "", member.ordinal, job_id, member)
            for member in self._members.values()
            for job_id, why_not in member.reserved_standbys.items()
        ]
        reports.sort(key=lambda report: report[:2], reverse=True)  # of several, the best comes last
        return {job_id: member for _, _, job_id, member in reports}

    def _best(self, job: JobAccount, need: DriverNeed, there: Mapping[Member, list[JobAccount]]) -> Member | None:
        """Return the task manager with the most state of the job, then the one with the fewest reserved standbys."""
        state = self._state.of(job.job_id)
        able = [
            (state.get(member, 0), -len(there.get(member, ())), member.free_memory, -member.ordinal, member)
            for member in self._members.values()
            if takes_drivers(member) and self._can_keep(member, job, need, there)
        ]
        return max(able, key=lambda entry: entry[:-1])[-1] if able else None

    def _can_keep(
        self, member: Member, job: JobAccount, need: DriverNeed, there: Mapping[Member, list[JobAccount]]
    ) -> bool:
        """True if a task manager can keep the job's reserved standby beside those of other jobs."""
        others = [other for other in there.get(member, ()) if other is not job]
        used = sum(self._needs[other].memory_mb for other in others)
        return (
            member.keeps_standby_drivers
            and member.info.node_id != job.last_node
            and need.python in ("", member.info.runtime.python)
            and member.free_places > 0
            and member.free_memory - used >= need.memory_mb
            and fit(need.custom, member.free_custom)
            and len(others) < RESERVED_STANDBYS
        )

    def _is_known(self, job: JobAccount) -> bool:
        return self._jobs.get(job.job_id) is job

    def _is_registered(self, member: Member) -> bool:
        return self._members.get(member.info.id) is member

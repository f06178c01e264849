"""Writes the jobs' attempts and results to the job store. Actions that depend on a record wait for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emberkeep.base.actors import Actor
from emberkeep.jobmanager.jobs.attempt_hold import AttemptHold
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import DriverHome, JobResult


class JobRecords:
    """Records of attempts and results that are being written.

    Belongs to ``owner`` and runs in its event loop. ``begun`` is called when an attempt is durable, before the job's
    state machine learns of that.
    """

    def __init__(
        self,
        owner: Actor,
        machines: JobMachines,
        writes: StoreWrites,
        hold: AttemptHold,
        begun: Callable[[ManagedJob, int], None],
    ) -> None:
        self._owner = owner
        self._machines = machines
        self._writes = writes
        self._hold = hold
        self._begun = begun
        self._expiring = False

    def begin_attempt(self, job: ManagedJob, attempt: int) -> None:
        """Record an attempt of this leader, once nothing holds it back."""
        place = job.state.place
        record = self._record_attempt(job, attempt, None if place is None else place.home)
        self._owner.start_effect(f"record attempt of {job.job_id}", record, deadline=None)

    async def _record_attempt(self, job: ManagedJob, attempt: int, home: DriverHome | None) -> None:
        # Record what the previous attempt did first: it may have stopped the job, so that no other attempt follows.
        await job.settled.wait()
        await self._hold.passed(job, attempt)
        written = await self._writes.record_attempt(job.job_id, attempt, home)
        self._owner.tell(partial(self._attempt_recorded, job, attempt, written))

    def adopt_attempt(self, job: ManagedJob, attempt: int) -> None:
        """Record an attempt that another leader has begun."""
        self._owner.start_effect(f"adopt attempt of {job.job_id}", self._adopt_attempt(job, attempt), deadline=None)

    async def _adopt_attempt(self, job: ManagedJob, attempt: int) -> None:
        await self._writes.adopt_attempt(job.job_id, attempt)
        self._owner.tell(partial(self._attempt_recorded, job, attempt, True))

    def _attempt_recorded(self, job: ManagedJob, attempt: int, written: bool) -> None:
        if written:
            self._begun(job, attempt)
        self._machines.apply(job.job_id, ev.AttemptRecorded() if written else ev.AttemptUnknown())

    def end_job(self, job: ManagedJob, result: JobResult) -> None:
        """Record a job's result."""
        self._owner.start_effect(f"record result of {result.job_id}", self._record_result(job, result), deadline=None)

    async def _record_result(self, job: ManagedJob, result: JobResult) -> None:
        await job.settled.wait()  # a savepoint that is being recorded is kept with the result
        await self._writes.record_result(result)
        self._owner.tell(partial(self._machines.apply, result.job_id, ev.ResultRecorded()))

    def expire_results(self, keep: int) -> None:
        """Delete all results but the newest ``keep``, unless a deletion is already under way."""
        if not self._expiring:
            self._expiring = True
            self._owner.start_effect("expire results", self._expire(keep), deadline=None)

    async def _expire(self, keep: int) -> None:
        self._machines.chronicle.forget(await self._writes.expire_results(keep))
        self._expiring = False

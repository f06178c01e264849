"""Takes what JobMasters report: registrations, heartbeats, and how attempts ended."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.checkpoint_records import CheckpointRecords
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves
from emberkeep.jobmanager.jobs.health.watches import JobWatches
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.jobs.savepoints.periodic import JobSavepoints
from emberkeep.jobmanager.term import Term
from emberkeep.jobs import events as ev
from emberkeep.jobs.checkpoints import merged
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, RegisterJobMaster, ReportOutcome

END_PATIENCE = 1.0  # seconds for which a reply to a driver waits for the record of a request's or job's end

_ANOTHER_FOLLOWS = frozenset({Phase.BACKING_OFF, Phase.PLACING, Phase.RECORDING_ATTEMPT})  # the attempt has ended
_NOT_RUNNING = "job {} is not running: it has ended or was never accepted here"


@dataclass(frozen=True)
class Contact:
    """A registered JobMaster that has just reported its status."""

    address: str
    is_newest: bool  # no newer status of this attempt has arrived
    trace: TraceReport | None  # what the JobMaster must add to the attempt's trace
    lease: float  # seconds of silence after which its attempt counts as lost


class JobMasterReports(ActorPart):
    """What JobMasters report about their attempts. A reply may wait for a record."""

    def __init__(
        self,
        owner: Actor,
        machines: JobMachines,
        term: Term,
        requests: JobRequests,
        checkpoints: CheckpointRecords,
        moves: DriverMoves,
        watches: JobWatches,
        savepoints: JobSavepoints,
    ) -> None:
        super().__init__(owner)
        self._machines = machines
        self._active = machines.table.active
        self._term = term
        self._requests = requests
        self._checkpoints = checkpoints
        self._moves = moves
        self._watches = watches
        self._savepoints = savepoints

    # --- registration and heartbeats ----------------------------------------------------------------------------------

    @asked
    def register(self, request: RegisterJobMaster) -> Contact:
        """Take a JobMaster's registration. Raises Conflict if the JobMaster must exit."""
        job = self._accepted(request.job_id, request.attempt)
        job.job_master, job.task_manager = request.address, request.task_manager
        self._term.hearing.heard(request.task_manager, self._term.clock.now())
        trace = request.status.trace
        self._machines.apply(
            job.job_id, ev.JobMasterRegistered(request.attempt, request.task_manager, request.pid, trace)
        )
        return self._contact(job, request)

    @asked
    def heartbeat(self, request: JobMasterHeartbeat) -> Contact | None:
        """Take a JobMaster's heartbeat. Return None if the JobMaster must register first.

        Raises Conflict if the JobMaster must exit.
        """
        job = self._accepted(request.job_id, request.attempt)
        if job.task_manager is not None:
            self._term.hearing.heard(job.task_manager, self._term.clock.now())
        if not job.state.knows_jobmaster():
            return None
        return self._contact(job, request)

    def _contact(self, job: ManagedJob, request: RegisterJobMaster | JobMasterHeartbeat) -> Contact:
        is_newest = self._take_status(job, request.attempt, request.status)
        trace, recorder = request.status.trace, job.state.history.trace_of(request.attempt)
        return Contact(
            job.job_master,
            is_newest,
            None if trace is None or recorder is None else recorder.answer(trace),
            job.state.policy.lease,
        )

    def _accepted(self, job_id: JobId, attempt: int) -> ManagedJob:
        """Return the job if its JobMaster of this attempt may continue; else raise Conflict.

        Either way, record that the attempt has made contact.
        """
        self._machines.attempt_seen(job_id, attempt)
        job = self._active.get(job_id)
        if job is not None:
            self._machines.apply(job_id, ev.JobMasterHeard(attempt))
        refusal = _NOT_RUNNING if job is None else job.state.refusal(attempt)
        if refusal:
            self._term.authority.check()  # a refused JobMaster exits, so only a certain leader may refuse
        if job is None or refusal:
            raise Conflict(refusal.format(job_id))
        return job

    def _take_status(self, job: ManagedJob, attempt: int, status: JobMasterStatus) -> bool:
        """Accept a JobMaster's status. Return False if a newer one is known."""
        if not job.take(status):
            return False
        self._machines.reported(job, attempt)
        if status.trace is not None and status.trace.milestones != job.traced:
            job.traced = status.trace.milestones
            self._machines.apply(job.job_id, ev.TraceReported(attempt, status.trace))
        if status.exceptions != job.noted:
            job.noted = status.exceptions
            self._machines.apply(job.job_id, ev.ExceptionsNoted(attempt, status.exceptions))
        if merged(job.pointers, attempt, status.checkpoints) is not job.pointers:
            self._checkpoints.note(job.job_id, attempt, status.checkpoints)
        self._requests.take(job, attempt, status.procedure)
        self._moves.review(job)
        self._watches.reported(job, attempt, status)
        self._savepoints.reported(job)
        return True

    # --- the end of a request -----------------------------------------------------------------------------------------

    def lacking(self, job_id: JobId, *, is_lacking: bool) -> None:
        """Note whether something is missing for the attempt that runs."""
        job = self._active.get(job_id)
        if job is not None:
            job.note_lack(is_lacking=is_lacking, now_ms=self._term.clock.now_ms())

    async def orders(self, job_id: JobId, told: ProcedureProgress | None) -> tuple[ProcedureRequest | None, str]:
        """Return the job's open request and the trigger id of the newest request whose end is recorded.

        Both go into the reply to a JobMaster; without such a request they are None and "". If ``told`` reports an end
        that is being recorded, wait up to END_PATIENCE seconds for the record, so that the reply can include it.
        """
        settled = await self.ask(partial(self._end_under_way, job_id, told))
        if settled is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_PATIENCE):
                    await settled.wait()
        return await self.ask(partial(self._orders, job_id, told))

    def _end_under_way(self, job_id: JobId, told: ProcedureProgress | None) -> asyncio.Event | None:
        """Return an event that is set once the reported end is recorded; None if no such record is under way."""
        job = self._active.get(job_id)
        if job is None or told is None or not told.phase.is_final or job.settled.is_set():
            return None
        return job.settled

    def _orders(self, job_id: JobId, told: ProcedureProgress | None) -> tuple[ProcedureRequest | None, str]:
        job = self._active.get(job_id)
        if job is None:
            return None, ""
        return job.requests.current, job.requests.recorded_for(told)

    # --- the end of an attempt ----------------------------------------------------------------------------------------

    async def report_outcome(self, request: ReportOutcome) -> None:
        """Take the first report of an attempt's end; repetitions do no harm.

        Returns once the job's result is in the store, if the end is final. Raises Conflict for older attempts,
        RetryLater if the result is not stored yet.
        """
        stored = await self.ask(partial(self._report_outcome, request))
        if stored is None:
            return
        try:
            async with asyncio.timeout(END_PATIENCE):
                await stored.wait()
        except TimeoutError:
            raise RetryLater(
                f"the result of job {request.job_id} is known but not stored yet", hint="report it again"
            ) from None

    def _report_outcome(self, request: ReportOutcome) -> asyncio.Event | None:
        """Return an event that is set once the job's result is stored; None if there is nothing to wait for."""
        job = self._active.get(request.job_id)
        if job is None:
            if self._machines.table.has_ended(request.job_id, request.attempt):
                return None
            raise Conflict(f"job {request.job_id} has no attempt {request.attempt} that could end")
        self._machines.attempt_seen(request.job_id, request.attempt)
        if request.attempt != job.state.attempt:
            raise Conflict(job.state.refusal(request.attempt))
        if job.state.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING):
            self._machines.apply(job.job_id, ev.JobMasterHeard(request.attempt))
            raise RetryLater(
                f"what follows this attempt of job {job.job_id} is not decided yet: "
                f"the job waits for {job.state.waiting()}"
            )
        outcome = self._moves.judged(job, request.attempt, request.outcome)
        self._machines.apply(job.job_id, ev.OutcomeReported(request.attempt, outcome))
        if job.state.phase is Phase.RECORDING_RESULT:
            return job.result_stored
        if outcome.kind is None and job.state.phase in _ANOTHER_FOLLOWS:
            # The attempt was abandoned before it reported: its success no longer counts.
            raise Conflict(job.state.refusal(request.attempt))
        return None

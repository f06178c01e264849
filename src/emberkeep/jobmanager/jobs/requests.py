"""Carries out what the state machines of requests decide: savepoint, suspend, drain and move.

Every reply to a job's JobMaster carries the job's open request, and so does the start of the next attempt's driver,
until the request's end is recorded.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import caller
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.jobs.driver_calls import DriverCalls
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.jobs.savepoints.recorded import pointer_of, recorded_end
from emberkeep.jobmanager.notes.request_notes import request_ended, request_recorded
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.views.procedures import ProcedureView, view_of_ended
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.events import StopRecorded
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.ports import StoredJob
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest
from emberkeep.lifecycle.requests import events as ev

ENDED_KEPT = 1000  # ended requests to remember, over all jobs; savepoints are also in their job's pointers
_LOOK_AGAIN = 2.0  # seconds between two checks of a request's deadline

log = structlog.get_logger(__name__)


class JobRequests(ActorPart):
    """The requests to all jobs: their callers, their records, and how recent requests ended.

    ``periodic_ended`` is called when a request for a periodic savepoint has ended, with the savepoint; None: it failed.
    """

    def __init__(
        self,
        owner: Actor,
        machines: JobMachines,
        writes: StoreWrites,
        answers: Answers,
        clock: SteadyClock,
        calls: DriverCalls,
        periodic_ended: Callable[[ManagedJob, ev.Ended, SavepointPointer | None], None],
    ) -> None:
        super().__init__(owner)
        self._calls = calls
        self._periodic_ended = periodic_ended
        self._machines = machines
        self._table = machines.table
        self._writes = writes
        self._answers = answers
        self._clock = clock
        self._ended: OrderedDict[tuple[JobId, str], ev.Ended] = OrderedDict()
        self._stops: dict[JobId, str] = {}  # of the jobs that had been stopped when this JobManager took over
        self._callers: dict[int, asyncio.Future[None]] = {}
        self._identities: dict[str, str] = {}  # by trigger id: who asks, until the request is answered
        self._numbers = itertools.count(ev.NOBODY + 1)

    # --- what users ask for -------------------------------------------------------------------------------------------

    async def request(self, job_id: JobId, request: ProcedureRequest) -> None:
        """Record durably what a job is asked to do; see ProcedureGateway.

        Raises Absent, Conflict, RetryLater, UnknownOutcome, Fatal.
        """
        answer = await self.ask(partial(self._request, job_id, request, caller()))
        await answer

    def _request(self, job_id: JobId, request: ProcedureRequest, by: str) -> asyncio.Future[None]:
        view = self._table.view(job_id)
        has_ended = self.end_of(job_id, request.trigger_id, view.pointers) is not None
        if not has_ended and view.status.is_globally_terminal:
            raise Conflict(f"job {job_id} has ended: it is {view.status.value}")
        if not has_ended and view.unreadable:
            raise RetryLater(
                f"job {job_id} waits for {view.waiting}", hint="its driver continues to run; try again later"
            )
        answer: asyncio.Future[None] = self._answers.new()
        if has_ended:
            answer.set_result(None)
            return answer
        number = next(self._numbers)
        self._callers[number] = answer
        self._identities[request.trigger_id] = by
        answer.add_done_callback(lambda _: self._answered(number, request.trigger_id))
        try:
            self.give(self._table.active[job_id], request, number)
        except EmberkeepError:
            answer.cancel()  # the caller gets the refusal instead, and the answer would be kept for ever
            raise
        return answer

    def _answered(self, number: int, trigger_id: str) -> None:
        self._callers.pop(number, None)
        self._identities.pop(trigger_id, None)

    @asked
    def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        """Return the progress of a request. Raises Absent."""
        view = self._table.view(job_id)
        if view.procedure is not None and view.procedure.trigger_id == trigger_id:
            return view.procedure
        ended = self.end_of(job_id, trigger_id, view.pointers)
        if ended is None:
            raise Absent(
                f"job {job_id} has no request {trigger_id}, or the request failed under an earlier leader",
                hint="`emberkeep savepoint list` shows the savepoints that were made",
            )
        return view_of_ended(job_id, ended)

    def end_of(self, job_id: JobId, trigger_id: str, pointers: JobPointers) -> ev.Ended | None:
        """Return how a request has ended; None if neither this JobManager nor the job's savepoints show that."""
        return self._ended.get((job_id, trigger_id)) or recorded_end(trigger_id, pointers)

    def has_stopped(self, job_id: JobId, trigger_id: str) -> bool:
        """True if the request had stopped the job before this JobManager took over, whether or not its end is known.

        The savepoint is complete then. Its record may have been unreadable.
        """
        return self._stops.get(job_id) == trigger_id

    # --- what happens to jobs -----------------------------------------------------------------------------------------

    def begin(self, job: ManagedJob, stored: StoredJob) -> None:
        """Take over a job's requests as the store has recorded them."""
        stopped = None
        if stored.stopped:
            stopped = recorded_end(stored.stopped, stored.pointers)
            stopped = stopped or ev.Ended(trigger_id=stored.stopped, request=None)
            self._stops[job.job_id] = stored.stopped
        self._apply(job, ev.TakenOver(stored.procedure, stopped))

    def give(self, job: ManagedJob, request: ProcedureRequest, caller: int = ev.NOBODY) -> None:
        """Begin to record a request, then answer its caller.

        Raises Conflict if the job does not take the request, RetryLater if it takes the request once a periodic
        savepoint is over.
        """
        status = job.state.status
        ending = status.value if status in (JobStatus.CANCELLING, JobStatus.FAILING) else ""
        self._apply(job, ev.RequestMade(request, caller, ending, has_driver=not job.state.lacks_driver()))

    def take(self, job: ManagedJob, attempt: int, progress: ProcedureProgress | None) -> None:
        """Take the newest progress that an attempt reports."""
        if progress is not None:
            self._apply(job, ev.Reported(attempt, progress))

    def attempt_recorded(self, job: ManagedJob) -> None:
        """Note that a newer attempt is durable."""
        self._apply(job, ev.NextAttemptRecorded())

    def job_ended(self, job: ManagedJob) -> None:
        """Note that the job's result is durable."""
        self._apply(job, ev.JobEnded(job.state.status.value))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _apply(self, job: ManagedJob, event: ev.Event) -> None:
        for effect in job.requests.handle(event, self._clock.now_ms()):
            self._carry_out(job, effect)

    def _carry_out(self, job: ManagedJob, effect: ev.Effect) -> None:
        start = partial(self._owner.start_effect, deadline=None)
        match effect:
            case ev.WriteRequest(request):
                start(f"ask {job.job_id}", self._write_request(job, request))
            case ev.Accept(callers):
                for answer in self._waiting(callers):
                    answer.set_result(None)
                start(f"wake the driver of {job.job_id}", self._calls.wake(job))
            case ev.Refuse(callers, error):
                for answer in self._waiting(callers):
                    answer.set_exception(error)
            case ev.WatchDeadline(request):
                start(f"deadline of request {request.trigger_id}", self._watch_deadline(job, request))
            case ev.WriteEnd(request, attempt, progress):
                job.settled.clear()
                start(f"end of request {request.trigger_id}", self._write_end(job, request, attempt, progress))
            case ev.DeleteRequest(request):
                job.settled.clear()
                start(f"end of request {request.trigger_id}", self._delete(job))
            case ev.Ended():
                self._remember(job, effect)
            case ev.StopJob():
                self._machines.apply(job.job_id, StopRecorded())

    def _waiting(self, callers: tuple[int, ...]) -> list[asyncio.Future[None]]:
        answers = [self._callers[caller] for caller in callers if caller in self._callers]
        return [answer for answer in answers if not answer.done()]

    async def _write_request(self, job: ManagedJob, request: ProcedureRequest) -> None:
        reason: EmberkeepError = RetryLater("the request is not stored")

        def refuse(error: EmberkeepError) -> None:
            nonlocal reason
            reason = error
            self.tell(partial(self._apply, job, ev.WriteUncertain(error)))

        written = await self._writes.record_procedure(job.job_id, request, refuse)
        if written:
            log.info("request recorded", job=job.job_id, procedure=request.procedure.value, request=request.trigger_id)
            if not request.periodic:  # its end is noted
                by = self._identities.get(request.trigger_id, "")
                self._machines.chronicle.note(request_recorded(job.job_id, request, by, job.state.driver_home()))
        self.tell(partial(self._apply, job, ev.RequestWritten() if written else ev.RequestNotWritten(reason)))

    async def _watch_deadline(self, job: ManagedJob, request: ProcedureRequest) -> None:
        at = self._clock.now() + request.seconds_left(self._clock.now_ms())
        while job.requests.current is request:
            if self._clock.now() >= at:
                self.tell(partial(self._pass_deadline, job, request))
            await asyncio.sleep(_LOOK_AGAIN)

    def _pass_deadline(self, job: ManagedJob, request: ProcedureRequest) -> None:
        self._apply(job, ev.DeadlinePassed(request.trigger_id, job.state.lacks_driver()))

    async def _delete(self, job: ManagedJob) -> None:
        written = await self._writes.forget_procedure(job.job_id)
        self.tell(partial(self._end_written, job, written, None))

    async def _write_end(
        self, job: ManagedJob, request: ProcedureRequest, attempt: int, progress: ProcedureProgress
    ) -> None:
        """Write the end of a request.

        Raises Conflict, which ends the actor, if this JobManager is no longer the leader.
        """
        pointers = await self._writes.record_procedure_end(
            job.job_id, attempt, request.trigger_id, pointer_of(request, progress), stopped=request.procedure.stops_job
        )
        self.tell(partial(self._end_written, job, pointers is not None, pointers))

    def _end_written(self, job: ManagedJob, written: bool, pointers: JobPointers | None) -> None:
        job.settled.set()
        if pointers is not None:
            job.pointers = pointers
        self._apply(job, ev.EndWritten() if written else ev.EndNotWritten())

    def _remember(self, job: ManagedJob, ended: ev.Ended) -> None:
        job_id, request = job.job_id, ended.request
        if ended.failure:
            log.warning("request failed", job=job_id, request=ended.trigger_id, reason=ended.failure)
        else:
            log.info("request is done", job=job_id, request=ended.trigger_id, savepoint=ended.savepoint)
        if request is not None and request.periodic:
            made = None if ended.failure else job.pointers.savepoint_of(ended.trigger_id)
            self._periodic_ended(job, ended, made)
        else:
            self._machines.chronicle.note(request_ended(job_id, ended))
        self._ended[job_id, ended.trigger_id] = ended
        while len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

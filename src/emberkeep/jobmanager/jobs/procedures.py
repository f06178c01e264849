"""Requests to jobs: savepoint, suspend, drain, move.

A request is durable before it is acknowledged. A job has one request at a time; only a move whose driver has left its
node gives way to another request. Every reply to the job's JobMaster carries the request, and so does the start of the
next attempt's driver, until the request's end is recorded. Only then is the end acknowledged. So whichever process
fails, its successor continues where it stopped.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.errors import Absent, Conflict, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs import events as ev
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest

ENDED_KEPT = 1000  # ended requests to remember, over all jobs; savepoints are also in their job's pointers
_LOOK_AGAIN = 2.0  # seconds between two checks of a request's deadline

_DOING = {
    Procedure.SAVEPOINT: "a savepoint of it is being made",
    Procedure.SUSPEND: "it is being suspended",
    Procedure.DRAIN: "it is being drained",
    Procedure.MOVE: "it is being moved",
}

log = structlog.get_logger(__name__)


@dataclass
class Standing:
    """The requests of one job. ``settled`` is set except while the end of ``wanted`` is being written."""

    wanted: ProcedureRequest | None = None  # the current request; durable
    asking: ProcedureRequest | None = None  # a new request that is being written
    answers: list[asyncio.Future[None]] = field(default_factory=list)  # wait until ``asking`` is durable
    progress: ProcedureProgress | None = None  # newest report about ``wanted``, or about ``stopped``
    stopped: ProcedureView | None = None  # the request that has stopped the job permanently; durable
    recorded: str = ""  # trigger id of the newest request whose end is durable
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # set while no end is being written

    def __post_init__(self) -> None:
        self.settled.set()

    @property
    def running(self) -> ProcedureRequest | None:
        return self.asking or self.wanted


class Procedures:
    """The requests of all jobs, at most one running per job.

    Belongs to ``owner`` and runs in its event loop. ``apply`` feeds a job's machine, ``written`` takes the pointers
    that the store holds of a job. ``lacks_driver`` returns what a job waits for if it has no driver and none is being
    started, else None. ``now_ms``: Unix milliseconds.
    """

    def __init__(
        self,
        owner: Actor,
        writes: StoreWrites,
        apply: Callable[[JobId, ev.Event], None],
        written: Callable[[JobId, JobPointers], None],
        lacks_driver: Callable[[JobId], str | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._owner = owner
        self._writes = writes
        self._apply = apply
        self._written = written
        self._lacks_driver = lacks_driver
        self._now_ms = now_ms
        self._ended: OrderedDict[tuple[JobId, str], ProcedureView] = OrderedDict()

    @staticmethod
    def recovered(job_id: JobId, wanted: ProcedureRequest | None, stopped: str, pointers: JobPointers) -> Standing:
        """Return the requests of a recovered job, as the store has them."""
        view = None
        if stopped:
            view = savepoint_view(job_id, stopped, pointers) or ProcedureView(
                job_id=job_id, trigger_id=stopped, request=None
            )
        return Standing(wanted=wanted, stopped=view, recorded=stopped)

    # --- asking -------------------------------------------------------------------------------------------------------

    def request(
        self,
        job_id: JobId,
        standing: Standing,
        status: JobStatus,
        request: ProcedureRequest,
        answer: asyncio.Future[None],
    ) -> None:
        """Write a request of a running job, then set ``answer``. Raises Conflict."""
        running = standing.running
        if running is not None and running.trigger_id == request.trigger_id:
            _check_same(running, request)
            if standing.asking is None:
                answer.set_result(None)
            else:
                standing.answers.append(answer)
            return
        if status in (JobStatus.CANCELLING, JobStatus.FAILING):
            raise Conflict(f"job {job_id} is ending: it is {status.value}")
        if standing.stopped is not None:
            raise Conflict(
                f"job {job_id} was stopped by request {standing.stopped.trigger_id}: it ends with its script",
                hint=f"its savepoint is {standing.stopped.savepoint}" if standing.stopped.savepoint else None,
            )
        if running is not None and not self._has_left(job_id, running):
            raise Conflict(
                f"job {job_id} is busy: {_DOING[running.procedure]} (request {running.trigger_id})",
                hint="wait for its end, and ask again",
            )
        standing.asking = request
        standing.answers = [answer]
        self._owner.start_effect(f"ask {job_id}", self._record(job_id, standing, request), deadline=None)

    def _has_left(self, job_id: JobId, running: ProcedureRequest) -> bool:
        """True if the request is a move whose driver has left its node.

        It waits only for the next driver's place, which can take hours.
        """
        return running.procedure is Procedure.MOVE and self._lacks_driver(job_id) is not None

    async def _record(self, job_id: JobId, standing: Standing, request: ProcedureRequest) -> None:
        written = await self._writes.record_procedure(job_id, request, partial(_refuse, standing))
        self._owner.tell(partial(self._asked, job_id, standing, request, written))

    def _asked(self, job_id: JobId, standing: Standing, request: ProcedureRequest, written: bool) -> None:
        standing.asking = None
        if written:
            log.info("request recorded", job=job_id, procedure=request.procedure.value, request=request.trigger_id)
            self._move_ended(job_id, standing)
            standing.wanted, standing.progress = request, None
            self.watch_deadline(job_id, standing)
        answers, standing.answers = standing.answers, []
        for answer in answers:
            if not answer.done():
                answer.set_result(None)

    def watch_deadline(self, job_id: JobId, standing: Standing) -> None:
        """Enforce the request's deadline while the job has no driver. A driver enforces it itself."""
        wanted = standing.wanted
        if wanted is not None and wanted.deadline_ms:
            watch = self._watch_deadline(job_id, standing, wanted)
            self._owner.start_effect(f"deadline of request {wanted.trigger_id}", watch, deadline=None)

    async def _watch_deadline(self, job_id: JobId, standing: Standing, wanted: ProcedureRequest) -> None:
        while standing.wanted is wanted:
            if self._now_ms() >= wanted.deadline_ms:
                self._owner.tell(partial(self._deadline_over, job_id, standing, wanted))
            await asyncio.sleep(_LOOK_AGAIN)

    def _deadline_over(self, job_id: JobId, standing: Standing, wanted: ProcedureRequest) -> None:
        # An attempt that is being recorded gets the request at its start, and enforces the deadline itself.
        waiting = self._lacks_driver(job_id)
        if waiting is None or standing.wanted is not wanted or not standing.settled.is_set():
            return
        now = self._now_ms()
        reason = f"the job had no driver when the request's time was over ({waiting}); it goes on as before"
        failed = ProcedureProgress(
            trigger_id=wanted.trigger_id, phase=ProcedurePhase.FAILED, started_ms=now, ended_ms=now, failure=reason
        )
        self._begin_end(job_id, standing, 0, wanted, failed)

    # --- what JobMasters tell -----------------------------------------------------------------------------------------

    def take(self, job_id: JobId, standing: Standing, attempt: int, progress: ProcedureProgress | None) -> None:
        """Take the newest progress that an attempt reports."""
        if progress is None:
            return
        wanted = standing.wanted
        if wanted is None or wanted.trigger_id != progress.trigger_id:
            return
        standing.progress = progress
        if progress.phase.is_final and standing.settled.is_set():
            self._begin_end(job_id, standing, attempt, wanted, progress)

    def _begin_end(
        self,
        job_id: JobId,
        standing: Standing,
        attempt: int,
        wanted: ProcedureRequest,
        progress: ProcedureProgress,
    ) -> None:
        standing.settled.clear()
        end = self._end(job_id, standing, attempt, wanted, progress)
        self._owner.start_effect(f"end of request {wanted.trigger_id}", end, deadline=None)

    async def _end(
        self,
        job_id: JobId,
        standing: Standing,
        attempt: int,
        wanted: ProcedureRequest,
        progress: ProcedureProgress,
    ) -> None:
        """Write the end of a request.

        Raises Conflict, which ends the actor, if this JobManager is no longer the leader.
        """
        if progress.phase is ProcedurePhase.FAILED:
            pointers = None
            written = await self._writes.forget_procedure(job_id)
        else:
            pointers = await self._writes.record_procedure_end(
                job_id, attempt, wanted.trigger_id, _pointer(progress), stopped=_stops(wanted.procedure)
            )
            written = pointers is not None
        self._owner.tell(partial(self._end_written, job_id, standing, wanted, progress, written, pointers))

    def _end_written(
        self,
        job_id: JobId,
        standing: Standing,
        wanted: ProcedureRequest,
        progress: ProcedureProgress,
        written: bool,
        pointers: JobPointers | None,
    ) -> None:
        standing.settled.set()
        if not written:
            return  # the job has ended, a newer attempt continues the request, or this one will report it again
        if standing.wanted is wanted:  # else the job's end was noted while this was written
            standing.wanted = None
        standing.recorded = wanted.trigger_id
        view = ProcedureView(
            job_id=job_id,
            trigger_id=wanted.trigger_id,
            request=wanted,
            progress=progress,
            is_over=True,
            savepoint=progress.savepoint,
            manifest_sha256=progress.manifest_sha256,
            failure=(progress.failure or "it failed") if progress.phase is ProcedurePhase.FAILED else "",
        )
        self._remember(view)
        if pointers is None:
            log.warning("request failed", job=job_id, request=wanted.trigger_id, reason=view.failure)
            return
        log.info("request is done", job=job_id, request=wanted.trigger_id, savepoint=progress.savepoint)
        self._written(job_id, pointers)
        if _stops(wanted.procedure):
            standing.stopped = view
            self._apply(job_id, ev.StopRecorded())

    def attempt_recorded(self, job_id: JobId, standing: Standing) -> None:
        """Note that a newer attempt is durable. The store has ended a move with that record."""
        self._move_ended(job_id, standing)
        standing.progress = None

    def _move_ended(self, job_id: JobId, standing: Standing) -> None:
        """End a move that the store no longer has, because a newer attempt or another request has replaced it."""
        wanted = standing.wanted
        if wanted is not None and wanted.procedure is Procedure.MOVE:
            standing.wanted = None
            standing.recorded = wanted.trigger_id
            self._remember(ProcedureView(job_id=job_id, trigger_id=wanted.trigger_id, request=wanted, is_over=True))

    def job_ended(self, job_id: JobId, standing: Standing, status: JobStatus) -> None:
        """Fail the request that is still open, because an ended job cannot carry it out."""
        running, standing.wanted = standing.running, None
        if running is not None:
            self._remember(
                ProcedureView(
                    job_id=job_id,
                    trigger_id=running.trigger_id,
                    request=running,
                    progress=standing.progress,
                    is_over=True,
                    failure=f"the job has ended before that was done: it is {status.value}",
                )
            )

    def _remember(self, view: ProcedureView) -> None:
        self._ended[view.job_id, view.trigger_id] = view
        while len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    # --- what is told and shown ---------------------------------------------------------------------------------------

    @staticmethod
    def recorded(standing: Standing, told: ProcedureProgress | None) -> str:
        """Return the newest request whose end is durable, for a JobMaster that has reported ``told``.

        If it reports the end of a request that is not the current one, this leader or an earlier one has recorded that
        end.
        """
        wanted = standing.wanted
        if told is not None and told.phase.is_final and (wanted is None or wanted.trigger_id != told.trigger_id):
            return told.trigger_id
        return standing.recorded

    @staticmethod
    def running(job_id: JobId, standing: Standing, waiting: str = "") -> ProcedureView | None:
        """Return the request that the job carries out now, or the one that has stopped it; None if there is none."""
        running = standing.running
        if running is None:
            return None if standing.stopped is None else _still_ending(standing.stopped)
        return ProcedureView(
            job_id=job_id,
            trigger_id=running.trigger_id,
            request=running,
            progress=standing.progress,
            waiting=waiting if standing.progress is None else "",
        )

    def ended(self, job_id: JobId, trigger_id: str, pointers: JobPointers) -> ProcedureView:
        """Return a request that has ended. Raises Absent."""
        view = self._ended.get((job_id, trigger_id)) or savepoint_view(job_id, trigger_id, pointers)
        if view is None:
            raise Absent(
                f"job {job_id} was not asked for anything under {trigger_id}, or it has failed and a JobManager that "
                "leads no more knew of it",
                hint="a savepoint that was made is among the job's checkpoints: `emberkeep savepoint list`",
            )
        return view

    def knows(self, job_id: JobId, trigger_id: str, pointers: JobPointers) -> bool:
        """True if the request has ended, as far as this JobManager remembers or the job's savepoints show."""
        known = (job_id, trigger_id) in self._ended
        return known or savepoint_view(job_id, trigger_id, pointers) is not None


def savepoint_view(job_id: JobId, trigger_id: str, pointers: JobPointers) -> ProcedureView | None:
    """Return the request that made one of the job's savepoints; None if no savepoint has this trigger id."""
    for pointer in pointers.savepoints:
        if pointer.trigger_id == trigger_id:
            return ProcedureView(
                job_id=job_id,
                trigger_id=trigger_id,
                request=None,
                is_over=True,
                savepoint=pointer.path,
                manifest_sha256=pointer.manifest_sha256,
            )
    return None


def _still_ending(view: ProcedureView) -> ProcedureView:
    return ProcedureView(
        job_id=view.job_id,
        trigger_id=view.trigger_id,
        request=view.request,
        progress=view.progress,
        savepoint=view.savepoint,
        manifest_sha256=view.manifest_sha256,
        waiting="the end of its script",
    )


def _check_same(known: ProcedureRequest, request: ProcedureRequest) -> None:
    if (known.procedure, known.target_directory) != (request.procedure, request.target_directory):
        raise Conflict(
            f"trigger id {request.trigger_id} was used for another request: {known.procedure.value} into "
            f"{known.target_directory or 'no directory'}",
            hint="choose a new trigger id",
        )


def _stops(procedure: Procedure) -> bool:
    """True if no attempt may follow."""
    return procedure in (Procedure.SUSPEND, Procedure.DRAIN)


def _pointer(progress: ProcedureProgress) -> SavepointPointer | None:
    if not progress.savepoint:
        return None
    return SavepointPointer(
        path=progress.savepoint,
        manifest_sha256=progress.manifest_sha256,
        created_ms=progress.ended_ms,
        trigger_id=progress.trigger_id,
    )


def _refuse(standing: Standing, error: EmberkeepError) -> None:
    for answer in standing.answers:
        if not answer.done():
            answer.set_exception(error)

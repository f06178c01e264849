"""Decide about the requests to one job: savepoint, suspend, drain, move.

Pure: events in, effects out. These rules hold at every step:

- A request is durable before its callers get a reply, and its end is durable before a JobMaster learns of the end.
  Whichever process fails, its successor continues where the process stopped.
- A job has one request at a time. Only a move whose driver has left its node gives way to another request.
- At most one write about the job's request is under way. A second one could undo the first.
- No request follows a suspend or a drain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from emberkeep.base.errors import Conflict, IllegalTransition, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.lifecycle.requests import events as ev
from emberkeep.lifecycle.requests.transitions import TRANSITIONS, RequestPhase

STEPS_KEPT = 30  # for the message of an illegal event

_DOING = {
    Procedure.SAVEPOINT: "a savepoint is being made",
    Procedure.SUSPEND: "it is being suspended",
    Procedure.DRAIN: "it is being drained",
    Procedure.MOVE: "it is being moved",
}


class RequestMachine:
    """The requests to one job. The state changes only in ``handle``.

    ``current``: the durable request, which the job carries out; None if it has no request. ``stopped``: the request
    that has stopped the job permanently. ``recorded``: the trigger id of the newest request whose end is durable.

    The class has one handler for each event, and the few rules that the handlers share. All of them change the same
    state, so they stay in one class.
    """

    def __init__(self, job_id: JobId) -> None:
        self.phase = RequestPhase.IDLE
        self.current: ProcedureRequest | None = None
        self.stopped: ev.Ended | None = None
        self.recorded = ""
        self._job_id = job_id
        self._steps: deque[str] = deque(maxlen=STEPS_KEPT)
        self._asked: ProcedureRequest | None = None  # the new request that is being written
        self._callers: tuple[int, ...] = ()  # they wait until ``_asked`` is durable
        self._is_late = False  # ``_asked`` is a move, and a newer attempt has become durable while it is written
        self._progress: ProcedureProgress | None = None  # the newest report about ``current``
        self._end: ev.Ended | None = None  # the end of ``current`` that is being written
        self._handlers: dict[type[Any], Callable[[Any, int], list[ev.Effect]]] = {
            ev.TakenOver: self._begin,
            ev.RequestMade: self._ask,
            ev.WriteUncertain: self._write_uncertain,
            ev.RequestWritten: self._request_written,
            ev.RequestNotWritten: self._request_not_written,
            ev.Reported: self._reported,
            ev.DeadlinePassed: self._deadline_passed,
            ev.EndWritten: self._end_written,
            ev.EndNotWritten: self._end_not_written,
            ev.NextAttemptRecorded: self._attempt_recorded,
            ev.JobEnded: self._job_ended,
        }

    def handle(self, event: ev.Event, now_ms: int) -> list[ev.Effect]:
        """Apply one event and return the effects. ``now_ms``: Unix milliseconds.

        Raises Conflict for a request that the job does not take, or RetryLater if it takes the request once a periodic
        savepoint is over. In both cases nothing changes. Raises IllegalTransition for an event that the phase does not
        allow.
        """
        targets = TRANSITIONS[self.phase].get(type(event))
        if targets is None:
            raise self._illegal(event)
        before = self.phase
        effects = self._handlers[type(event)](event, now_ms)
        if self.phase is not before:
            self._steps.append(f"{type(event).__name__}: {before.value} → {self.phase.value}")
        if self.phase not in targets:
            raise self._illegal(event)
        return effects

    # --- what others read ---------------------------------------------------------------------------------------------

    @property
    def newest(self) -> ProcedureRequest | None:
        """The request that is being written, the current one, or else one that is being deleted; None without any."""
        deleted = self._end.request if self.phase is RequestPhase.RECORDING_END and self._end is not None else None
        return self._asked or self.current or deleted

    @property
    def progress(self) -> ProcedureProgress | None:
        """The newest report about ``newest``; None before the first report."""
        newest, known = self.newest, self._progress
        return known if newest is not None and known is not None and known.trigger_id == newest.trigger_id else None

    def recorded_for(self, told: ProcedureProgress | None) -> str:
        """Return the trigger id of the newest request whose end is durable, for a JobMaster that has reported ``told``.

        Return "" if no end is durable. If ``told`` is the end of a request that is not the current one, this leader or
        an earlier one has recorded that end, unless it is a stop that the store has forgotten.
        """
        current = self.current
        if told is None or not told.phase.is_final or (current is not None and current.trigger_id == told.trigger_id):
            return self.recorded
        is_over = self.phase is RequestPhase.ENDED or self.stopped is not None
        return told.trigger_id if is_over or not _has_stopped(told) else ""

    # --- a job that is taken over ------------------------------------------------------------------------------------

    def _begin(self, event: ev.TakenOver, now_ms: int) -> list[ev.Effect]:
        if event.stopped is not None:
            self.phase, self.stopped, self.recorded = RequestPhase.STOPPED, event.stopped, event.stopped.trigger_id
            return []
        self.current = event.current
        self._become_open_or_idle()
        return _watch(self.current)

    # --- a new request ------------------------------------------------------------------------------------------------

    def _ask(self, event: ev.RequestMade, now_ms: int) -> list[ev.Effect]:
        request, newest = event.request, self.newest
        if newest is not None and newest.trigger_id == request.trigger_id:
            _check_same(newest, request)
            if self._asked is None:
                return [ev.Accept((event.caller,))]
            self._callers = (*self._callers, event.caller)
            return []
        self._check_free(event)
        self.phase = RequestPhase.RECORDING_REQUEST
        self._asked, self._callers, self._is_late = request, (event.caller,), False
        return [ev.WriteRequest(request)]

    def _check_free(self, event: ev.RequestMade) -> None:
        """Raise Conflict if the job does not take this request, RetryLater if it takes the request soon."""
        if event.ending or self.phase is RequestPhase.ENDED:
            raise Conflict(f"job {self._job_id} is ending: it is {event.ending or 'over'}")
        if self.stopped is not None:
            raise Conflict(
                f"job {self._job_id} was stopped by request {self.stopped.trigger_id}: it ends with its script",
                hint=f"its savepoint is {self.stopped.savepoint}" if self.stopped.savepoint else None,
            )
        newest = self.newest
        if newest is not None and newest.periodic:
            raise RetryLater(
                f"job {self._job_id} is busy: a periodic savepoint is being made (request {newest.trigger_id})",
                hint="try again when it has ended; 'emberkeep cancel' does not wait",
            )
        if newest is not None and not self._gives_way(newest, event):
            raise Conflict(
                f"job {self._job_id} is busy: {_DOING[newest.procedure]} (request {newest.trigger_id})",
                hint="wait until that request has ended, then try again",
            )

    def _gives_way(self, newest: ProcedureRequest, event: ev.RequestMade) -> bool:
        """True if the request is a move whose driver has left its node.

        Such a move waits only for the next driver's place, which can take hours. While its end is being written, the
        move does not give way: that write would delete the request that follows.
        """
        return self.phase is RequestPhase.OPEN and newest.procedure is Procedure.MOVE and not event.has_driver

    def _write_uncertain(self, event: ev.WriteUncertain, now_ms: int) -> list[ev.Effect]:
        return self._answer(event)

    def _request_written(self, event: ev.RequestWritten, now_ms: int) -> list[ev.Effect]:
        request = self._asked
        assert request is not None  # noqa: S101 - the phase has it
        self._asked = None
        if self.phase is RequestPhase.ENDED:
            return self._answer(event)
        effects = self._end_move()
        if self._is_late:  # the driver that had to leave is gone, and its successor must not leave as well
            self.phase, self._end = RequestPhase.RECORDING_END, ev.Ended(trigger_id=request.trigger_id, request=request)
            return [*effects, *self._answer(event), ev.DeleteRequest(request)]
        self.phase, self.current, self._progress = RequestPhase.OPEN, request, None
        return [*effects, *_watch(request), *self._answer(event)]

    def _request_not_written(self, event: ev.RequestNotWritten, now_ms: int) -> list[ev.Effect]:
        self._asked = None
        if self.phase is not RequestPhase.ENDED:
            self._become_open_or_idle()
        return self._answer(event)

    def _answer(self, event: ev.RequestWritten | ev.RequestNotWritten | ev.WriteUncertain) -> list[ev.Effect]:
        callers, self._callers = self._callers, ()
        if not callers:
            return []
        return [ev.Accept(callers) if isinstance(event, ev.RequestWritten) else ev.Refuse(callers, event.error)]

    # --- its end ------------------------------------------------------------------------------------------------------

    def _reported(self, event: ev.Reported, now_ms: int) -> list[ev.Effect]:
        current, progress = self.current, event.progress
        if current is None or current.trigger_id != progress.trigger_id:
            return self._record_forgotten(event, now_ms) if _has_stopped(progress) else []
        self._progress = progress
        if not progress.phase.is_final or self.phase is not RequestPhase.OPEN:
            return []  # the JobMaster reports an unrecorded end again
        return self._begin_end(current, progress, event.attempt)

    def _record_forgotten(self, event: ev.Reported, now_ms: int) -> list[ev.Effect]:
        """Record a stop that the store has forgotten: it was restored from a copy that is older than the request.

        The end of a stop is recorded together with the fact that the job has stopped, so a job that has not stopped
        lacks both. It cannot carry out a request that came later.
        """
        progress, later = event.progress, self.current
        if self.phase is RequestPhase.OPEN and later is not None:
            reason = f"request {progress.trigger_id} has stopped the job, before this one came"
            return self._begin_end(later, _failed(later, reason, now_ms), attempt=0)
        if self.phase is not RequestPhase.IDLE or progress.procedure is None:
            return []  # the JobMaster reports it again
        self._progress = progress
        request = ProcedureRequest(trigger_id=progress.trigger_id, procedure=progress.procedure)
        return self._begin_end(request, progress, event.attempt)

    def _deadline_passed(self, event: ev.DeadlinePassed, now_ms: int) -> list[ev.Effect]:
        # An attempt that is being recorded gets the request at its start, and enforces the deadline itself.
        current = self.current
        if current is None or self.phase is not RequestPhase.OPEN or not event.waits_for:
            return []
        if current.trigger_id != event.trigger_id:
            return []
        reason = f"the job had no driver when the request's time was over ({event.waits_for}); the job continues"
        return self._begin_end(current, _failed(current, reason, now_ms), attempt=0)

    def _begin_end(self, current: ProcedureRequest, progress: ProcedureProgress, attempt: int) -> list[ev.Effect]:
        self.phase = RequestPhase.RECORDING_END
        failed = progress.phase is ProcedurePhase.FAILED
        self._end = ev.Ended(
            trigger_id=current.trigger_id,
            request=current,
            progress=progress,
            savepoint=progress.savepoint,
            manifest_sha256=progress.manifest_sha256,
            failure=(progress.failure or "it failed") if failed else "",
        )
        return [ev.DeleteRequest(current) if failed else ev.WriteEnd(current, attempt, progress)]

    def _end_written(self, event: ev.EndWritten, now_ms: int) -> list[ev.Effect]:
        end, self._end = self._end, None
        assert end is not None  # noqa: S101 - the phase has it
        self.current, self.recorded = None, end.trigger_id
        if self.phase is RequestPhase.ENDED:
            return [end]
        self.phase = RequestPhase.IDLE
        if end.failure or end.request is None or not end.request.procedure.stops_job:
            return [end]
        self.phase, self.stopped = RequestPhase.STOPPED, end
        return [end, ev.StopJob()]

    def _end_not_written(self, event: ev.EndNotWritten, now_ms: int) -> list[ev.Effect]:
        self._end = None
        if self.phase is not RequestPhase.ENDED:
            self._become_open_or_idle()  # a newer attempt continues the request, or this attempt reports the end again
        return []

    def _attempt_recorded(self, event: ev.NextAttemptRecorded, now_ms: int) -> list[ev.Effect]:
        effects = self._end_move()
        self._progress = None
        self._is_late = self._asked is not None and self._asked.procedure is Procedure.MOVE
        if self.phase is RequestPhase.OPEN:
            self._become_open_or_idle()
        return effects

    def _end_move(self) -> list[ev.Effect]:
        """End a move that the store no longer has, because a newer attempt or another request has replaced it."""
        current = self.current
        if current is None or current.procedure is not Procedure.MOVE:
            return []
        self.current, self.recorded = None, current.trigger_id
        return [ev.Ended(trigger_id=current.trigger_id, request=current)]

    def _job_ended(self, event: ev.JobEnded, now_ms: int) -> list[ev.Effect]:
        """Fail the request that is still open, because an ended job cannot carry it out."""
        newest, progress = self.newest, self.progress
        self.phase, self.current = RequestPhase.ENDED, None
        if newest is None:
            return []
        failure = f"the job has ended before that was done: it is {event.status}"
        return [ev.Ended(trigger_id=newest.trigger_id, request=newest, progress=progress, failure=failure)]

    # --- states -------------------------------------------------------------------------------------------------------

    def _become_open_or_idle(self) -> None:
        self.phase = RequestPhase.IDLE if self.current is None else RequestPhase.OPEN

    def _illegal(self, event: ev.Event) -> IllegalTransition:
        return IllegalTransition(
            f"requests to job {self._job_id}", self.phase.value, type(event).__name__, tuple(self._steps)
        )

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        phase, current = self.phase, self.current

        def hold(truth: bool, what: str) -> None:
            if not truth:
                raise AssertionError(f"requests to job {self._job_id} in {phase.value} break the invariant: {what}")

        ended = phase is RequestPhase.ENDED
        hold(ended or (phase is RequestPhase.RECORDING_REQUEST) == (self._asked is not None), "what is written")
        hold(ended or (phase is RequestPhase.RECORDING_END) == (self._end is not None), "which end is written")
        hold(self._asked is None or self._end is None, "one write at a time")
        hold(not self._callers or self._asked is not None, "callers wait for a write")
        hold(phase is not RequestPhase.OPEN or current is not None, "something is open")
        free = (RequestPhase.IDLE, RequestPhase.STOPPED, RequestPhase.ENDED)
        hold(phase not in free or current is None, "nothing is open")
        replaces = phase is RequestPhase.RECORDING_REQUEST and current is not None
        hold(not replaces or (current is not None and current.procedure is Procedure.MOVE), "a move gives way")
        hold(ended or (phase is RequestPhase.STOPPED) == (self.stopped is not None), "a stop is permanent")
        hold(current is None or current.trigger_id != self.recorded, "an open request has no recorded end")


def _watch(current: ProcedureRequest | None) -> list[ev.Effect]:
    """Return the effect that enforces the current request's deadline while the job has no driver.

    If the job has a driver, the driver enforces the deadline.
    """
    return [ev.WatchDeadline(current)] if current is not None and current.deadline_ms else []


def _has_stopped(told: ProcedureProgress) -> bool:
    """True if a driver has stopped the job as it was asked to."""
    stops = told.procedure is not None and told.procedure.stops_job
    return stops and told.phase is ProcedurePhase.COMPLETED


def _failed(request: ProcedureRequest, reason: str, now_ms: int) -> ProcedureProgress:
    """Return how a request ends that no driver has carried out."""
    return ProcedureProgress(
        trigger_id=request.trigger_id,
        phase=ProcedurePhase.FAILED,
        started_ms=now_ms,
        ended_ms=now_ms,
        failure=reason,
        procedure=request.procedure,
    )


def _check_same(known: ProcedureRequest, request: ProcedureRequest) -> None:
    if (known.procedure, known.target_directory) != (request.procedure, request.target_directory):
        raise Conflict(
            f"trigger id {request.trigger_id} was used for another request: {known.procedure.value} into "
            f"{known.target_directory or 'no directory'}",
            hint="choose a new trigger id",
        )

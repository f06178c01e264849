"""Decide the steps of a procedure: make a savepoint, suspend, drain or move a running job.

Pure: events in, effects out.

Each effect is one step; its result comes back as an event. The table PLANS gives the order of the steps, and with it
the order of calls to user functions (END-3). ``close`` is not in the table, because it is called at every end of a
driver. The state of functions is kept before a savepoint is written: whenever the savepoint exists, the next attempt
finds a state that is at least as new.

Until the savepoint is complete and the functions have been notified, a failure is rolled back: the steps begun so far
are undone, the queries are resumed or started again, and the job continues (END-6). If that is impossible, the attempt
fails. Once they have been notified, the procedure only goes forward.

Steps are idempotent. A later attempt that finds the request still stored runs it from the start, as the first attempt
did.
"""

from __future__ import annotations

import enum

import msgspec

from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest

TRIES = 3  # tries of NOTIFY_COMPLETE and of SHUTDOWN


class Step(enum.Enum):
    CHECK = "CHECK"  # pre-flight check: there is something to save, and the target can be written; changes nothing
    FINISH_BATCHES = "FINISH_BATCHES"  # stop the queries between two micro-batches; the script's awaits keep waiting
    DRAIN = "DRAIN"
    PAUSE = "PAUSE"  # hold the queries between two micro-batches without ending them
    PREPARE_TO_SHUTDOWN = "PREPARE_TO_SHUTDOWN"
    SNAPSHOT_STATE = "SNAPSHOT_STATE"
    KEEP_STATE = "KEEP_STATE"  # make the functions' state durable for the next attempt
    RETAIN_BATCHES = "RETAIN_BATCHES"  # keep the files that the savepoint copies while the queries continue
    RESUME = "RESUME"
    WRITE_SAVEPOINT = "WRITE_SAVEPOINT"
    RELEASE_BATCHES = "RELEASE_BATCHES"  # end what RETAIN_BATCHES began
    NOTIFY_COMPLETE = "NOTIFY_COMPLETE"
    SHUTDOWN = "SHUTDOWN"
    # Rolling back.
    DISCARD_SAVEPOINT = "DISCARD_SAVEPOINT"  # delete the files written for the savepoint; a failure is ignored
    START_QUERIES = "START_QUERIES"  # with their recorded writers; the script does not notice that they had stopped
    # The end.
    END_SCRIPT_WAIT = "END_SCRIPT_WAIT"  # the script continues after its awaits
    LEAVE = "LEAVE"  # the process ends, and the next attempt starts elsewhere
    FAIL_ATTEMPT = "FAIL_ATTEMPT"  # rolling back failed in this attempt: the next one starts the queries


PLANS: dict[Procedure, tuple[Step, ...]] = {
    Procedure.SAVEPOINT: (
        Step.CHECK,
        Step.PAUSE,
        Step.SNAPSHOT_STATE,
        Step.RETAIN_BATCHES,
        Step.RESUME,
        Step.KEEP_STATE,
        Step.WRITE_SAVEPOINT,
        Step.RELEASE_BATCHES,
        Step.NOTIFY_COMPLETE,
    ),
    Procedure.SUSPEND: (
        Step.CHECK,
        Step.FINISH_BATCHES,
        Step.SNAPSHOT_STATE,
        Step.KEEP_STATE,
        Step.WRITE_SAVEPOINT,
        Step.NOTIFY_COMPLETE,
    ),
    Procedure.DRAIN: (
        Step.CHECK,
        Step.FINISH_BATCHES,
        Step.DRAIN,
        Step.PREPARE_TO_SHUTDOWN,
        Step.SNAPSHOT_STATE,
        Step.KEEP_STATE,
        Step.WRITE_SAVEPOINT,
        Step.NOTIFY_COMPLETE,
        Step.SHUTDOWN,
    ),
    Procedure.MOVE: (
        Step.FINISH_BATCHES,
        Step.SNAPSHOT_STATE,
        Step.KEEP_STATE,
        Step.NOTIFY_COMPLETE,
    ),
}

_PHASES = {
    Step.CHECK: ProcedurePhase.FINISHING_BATCHES,
    Step.FINISH_BATCHES: ProcedurePhase.FINISHING_BATCHES,
    Step.PAUSE: ProcedurePhase.FINISHING_BATCHES,
    Step.DRAIN: ProcedurePhase.DRAINING,
    Step.PREPARE_TO_SHUTDOWN: ProcedurePhase.DRAINING,
}
_BACKWARD = (Step.RELEASE_BATCHES, Step.RESUME, Step.DISCARD_SAVEPOINT, Step.START_QUERIES)
# If one of these steps hangs, it could later plan a batch of a query that was started again, so the attempt fails.
_WITH_QUERIES = (Step.FINISH_BATCHES, Step.DRAIN)


# --- events -----------------------------------------------------------------------------------------------------------


class Requested(msgspec.Struct, frozen=True):
    """The JobManager asks for a procedure. It repeats the request until the procedure's end is recorded.

    ``fulfilled``: an earlier attempt got the request, and the start of this attempt has fulfilled it.
    """

    request: ProcedureRequest
    fulfilled: bool = False


class StepDone(msgspec.Struct, frozen=True):
    """A step succeeded.

    ``savepoint`` and ``manifest_sha256``: results of WRITE_SAVEPOINT. ``warning``: what users must know
    although the step succeeded.
    """

    trigger_id: str
    step: Step
    savepoint: str = ""
    manifest_sha256: str = ""
    warning: str = ""


class StepFailed(msgspec.Struct, frozen=True):
    """A step failed.

    ``hangs``: True if the step may still be running, and may continue at any time. ``impossible``: True if it fails
    again for as long as the job runs the same queries.
    """

    trigger_id: str
    step: Step
    reason: str
    hangs: bool = False
    impossible: bool = False


class Noted(msgspec.Struct, frozen=True):
    """Progress of the current step, as text for users."""

    trigger_id: str
    detail: str
    files_done: int = 0
    files_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0


class Recorded(msgspec.Struct, frozen=True):
    """The JobManager has recorded the end of the request with this trigger id."""

    trigger_id: str


Event = Requested | StepDone | StepFailed | Noted | Recorded


# --- effects ----------------------------------------------------------------------------------------------------------


class Run(msgspec.Struct, frozen=True):
    """Carry out the step; answer with StepDone or StepFailed."""

    step: Step
    request: ProcedureRequest
    reason: str = ""  # with FAIL_ATTEMPT: why


class Tell(msgspec.Struct, frozen=True):
    """Send ``progress`` to the JobManager at once, because it has changed."""


Effect = Run | Tell


class ProcedureMachine:
    """The procedures of one attempt, one at a time.

    ``progress``: the progress of the newest request; None before the first one.
    """

    def __init__(self) -> None:
        self.progress: ProcedureProgress | None = None
        self.calls: list[Step] = []  # steps begun since the newest request, for operators and tests
        self._request: ProcedureRequest | None = None
        self._ahead: tuple[Step, ...] = ()  # the current step and those after it
        self._tries = 0
        self._failure = ""  # why the procedure failed; set while the procedure is being rolled back, and afterwards
        self._released = False  # True once the request's end was recorded and acted upon

    @property
    def request(self) -> ProcedureRequest | None:
        """The newest request; None before the first one."""
        return self._request

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Apply one event and return the effects. ``now_ms``: Unix milliseconds."""
        match event:
            case Requested():
                return self._requested(event, now_ms)
            case StepDone() if self._is_current(event):
                return self._done(event, now_ms)
            case StepFailed() if self._is_current(event):
                return self._failed(event, now_ms)
            case Noted():
                return self._noted(event)
            case Recorded():
                return self._recorded(event)
            case _:
                return []  # it is about a step that has already ended

    def _is_current(self, event: StepDone | StepFailed) -> bool:
        assert self._request is None or self.progress is not None  # noqa: S101
        return (
            self._request is not None
            and bool(self._ahead)
            and self._ahead[0] is event.step
            and (event.trigger_id == self._request.trigger_id)
        )

    def _requested(self, event: Requested, now_ms: int) -> list[Effect]:
        request = event.request
        if self._request is not None and self._request.trigger_id == request.trigger_id:
            return []
        if self.progress is not None and not self.progress.phase.is_final:
            return []  # the JobManager repeats it until the current procedure is over
        if self._request is not None and self._request.procedure.ends_attempt and not self._failure:
            return []  # the attempt ends
        self._request, self._tries, self._failure, self.calls = request, 0, "", []
        if event.fulfilled:
            self.progress = _first_progress(request, ProcedurePhase.FINISHING_BATCHES, now_ms)
            self._released = True
            return self._end(now_ms, detail="another attempt was started")
        self._released = False
        self._ahead = PLANS[request.procedure]
        self.progress = _first_progress(request, _PHASES[self._ahead[0]], now_ms)
        return [*self._begin(), Tell()]

    def _begin(self) -> list[Effect]:
        assert self._request is not None  # noqa: S101
        step = self._ahead[0]
        self.calls.append(step)
        return [Run(step, self._request)]

    def _done(self, event: StepDone, now_ms: int) -> list[Effect]:
        if event.step is Step.WRITE_SAVEPOINT:
            self._change(savepoint=event.savepoint, manifest_sha256=event.manifest_sha256)
        self._warn(event.warning)
        return self._next(now_ms)

    def _next(self, now_ms: int) -> list[Effect]:
        self._ahead = self._ahead[1:]
        self._tries = 0
        if not self._ahead:
            return self._end(now_ms)
        if self._failure:
            return self._begin()
        before = self._phase()
        self._change(phase=_PHASES.get(self._ahead[0], ProcedurePhase.COPYING))
        told: list[Effect] = [] if self._phase() is before else [Tell()]
        return [*self._begin(), *told]

    def _end(self, now_ms: int, detail: str = "") -> list[Effect]:
        assert self._request is not None  # noqa: S101
        if self._failure:
            self._change(
                phase=ProcedurePhase.FAILED,
                failure=self._failure,
                ended_ms=now_ms,
                savepoint="",
                manifest_sha256="",
                warning="",
            )
            return [Tell()]
        self._change(phase=ProcedurePhase.COMPLETED, ended_ms=now_ms, detail=detail or self._detail())
        return [Tell()]

    def _failed(self, event: StepFailed, now_ms: int) -> list[Effect]:
        assert self._request is not None  # noqa: S101
        if event.step in _BACKWARD and self._failure:
            return self._way_back_failed(event, now_ms)
        if event.step in (Step.NOTIFY_COMPLETE, Step.SHUTDOWN) and not event.hangs:
            self._tries += 1
            if self._tries < TRIES:
                return self._begin()
        if event.step is Step.SHUTDOWN:  # the savepoint is complete and announced, so nothing is rolled back
            self._warn(f"a function did not shut down: {event.reason}")
            return self._next(now_ms)
        self._failure = event.reason
        self._change(impossible=event.impossible)
        if event.hangs and event.step in _WITH_QUERIES:
            return self._fail_attempt(now_ms)
        self._ahead = (event.step, *_way_back(self._request.procedure, self.calls, event.step))
        return self._next(now_ms)

    def _way_back_failed(self, event: StepFailed, now_ms: int) -> list[Effect]:
        assert self._request is not None  # noqa: S101
        if event.step is Step.DISCARD_SAVEPOINT:
            return self._next(now_ms)  # what is left is incomplete, or a savepoint that was never reported
        self._failure = f"{self._failure}; the queries could not be started again: {event.reason}"
        return self._fail_attempt(now_ms)

    def _fail_attempt(self, now_ms: int) -> list[Effect]:
        assert self._request is not None  # noqa: S101
        self._ahead = ()
        self.calls.append(Step.FAIL_ATTEMPT)
        return [*self._end(now_ms), Run(Step.FAIL_ATTEMPT, self._request, self._failure)]

    def _noted(self, event: Noted) -> list[Effect]:
        if self._request is None or event.trigger_id != self._request.trigger_id or self._phase().is_final:
            return []
        self._change(
            detail=event.detail,
            files_done=event.files_done,
            files_total=event.files_total,
            bytes_done=event.bytes_done,
            bytes_total=event.bytes_total,
        )
        return []

    def _recorded(self, event: Recorded) -> list[Effect]:
        request = self._request
        if request is None or self._released or event.trigger_id != request.trigger_id:
            return []
        if self._phase() is not ProcedurePhase.COMPLETED:
            return []
        self._released = True
        if not request.procedure.ends_attempt:
            return []
        step = Step.LEAVE if request.procedure is Procedure.MOVE else Step.END_SCRIPT_WAIT
        self.calls.append(step)
        return [Run(step, request)]

    def _phase(self) -> ProcedurePhase:
        assert self.progress is not None  # noqa: S101
        return self.progress.phase

    def _detail(self) -> str:
        assert self.progress is not None  # noqa: S101
        return self.progress.detail

    def _warn(self, text: str) -> None:
        assert self.progress is not None  # noqa: S101
        if text:
            before = self.progress.warning
            self._change(warning=f"{before}; {text}" if before else text)

    def _change(self, **fields: object) -> None:
        assert self.progress is not None  # noqa: S101
        self.progress = msgspec.structs.replace(self.progress, **fields)


def _first_progress(request: ProcedureRequest, phase: ProcedurePhase, now_ms: int) -> ProcedureProgress:
    return ProcedureProgress(trigger_id=request.trigger_id, phase=phase, started_ms=now_ms, procedure=request.procedure)


def _way_back(procedure: Procedure, begun: list[Step], failed: Step) -> tuple[Step, ...]:
    """Return the steps that undo the steps ``begun``, successful or not. ``failed``: the last step that was begun."""
    steps = []
    if Step.PAUSE in begun and (Step.RESUME not in begun or failed is Step.RESUME):
        steps.append(Step.RESUME)
    if Step.WRITE_SAVEPOINT in begun:
        steps.append(Step.DISCARD_SAVEPOINT)
    if Step.RETAIN_BATCHES in begun:
        steps.append(Step.RELEASE_BATCHES)
    if procedure.ends_attempt:  # always: in a later attempt queries may be stopped from the start
        steps.append(Step.START_QUERIES)
    return tuple(steps)

"""What happens in which order when a running job is asked for a savepoint, to stop, to drain or to move. Pure.

Events in, effects out: each effect is one step, whose end comes back as an event. The order of calls to user functions
is END-3's, from the table here; ``close`` comes at every end of a driver, after all of it. Until a savepoint is
complete every failure leads back to where the job was: its queries are started again and it runs on (END-6). Once it
is, and the functions know, the procedure only goes forward.

A later attempt that finds the request still stored gets it as the first one did: steps are idempotent.
"""

from __future__ import annotations

import enum

import msgspec

from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest

TRIES = 3  # of telling functions about a savepoint that is complete


class Step(enum.Enum):
    CHECK = "CHECK"  # there is something to save, and where it is to go can be written; changes nothing
    FINISH_BATCHES = "FINISH_BATCHES"  # awaits are held back, the queries end between two micro-batches
    DRAIN = "DRAIN"
    PAUSE = "PAUSE"  # the queries stay between two micro-batches, without ending
    PREPARE_TO_SHUTDOWN = "PREPARE_TO_SHUTDOWN"
    SNAPSHOT_STATE = "SNAPSHOT_STATE"
    KEEP_STATE = "KEEP_STATE"  # what functions gave is durable, for the next attempt
    RETAIN_BATCHES = "RETAIN_BATCHES"  # what the savepoint copies stays, however far the queries go on
    RESUME = "RESUME"
    WRITE_SAVEPOINT = "WRITE_SAVEPOINT"
    RELEASE_BATCHES = "RELEASE_BATCHES"  # of RETAIN_BATCHES
    NOTIFY_COMPLETE = "NOTIFY_COMPLETE"
    SHUTDOWN = "SHUTDOWN"
    # Back to where the job was.
    DISCARD_SAVEPOINT = "DISCARD_SAVEPOINT"  # what of it is written; never fails the way back
    START_QUERIES = "START_QUERIES"  # by their recorded writers; the script does not see that they were away
    # The end.
    END_SCRIPT_WAIT = "END_SCRIPT_WAIT"  # the script goes on after its awaits
    LEAVE = "LEAVE"  # the process ends, and the next attempt starts elsewhere
    FAIL_ATTEMPT = "FAIL_ATTEMPT"  # the queries cannot be started again here: the next attempt does it


PLANS: dict[Procedure, tuple[Step, ...]] = {
    Procedure.SAVEPOINT: (
        Step.CHECK,
        Step.PAUSE,
        Step.SNAPSHOT_STATE,
        Step.RETAIN_BATCHES,
        Step.RESUME,
        Step.WRITE_SAVEPOINT,
        Step.RELEASE_BATCHES,
        Step.NOTIFY_COMPLETE,
    ),
    Procedure.SUSPEND: (
        Step.CHECK,
        Step.FINISH_BATCHES,
        Step.SNAPSHOT_STATE,
        Step.WRITE_SAVEPOINT,
        Step.NOTIFY_COMPLETE,
    ),
    Procedure.DRAIN: (
        Step.CHECK,
        Step.FINISH_BATCHES,
        Step.DRAIN,
        Step.PREPARE_TO_SHUTDOWN,
        Step.SNAPSHOT_STATE,
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
_WITH_QUERIES = (Step.FINISH_BATCHES, Step.DRAIN)  # one that hangs may plan a batch of a query that was started again


# --- events -----------------------------------------------------------------------------------------------------------


class Requested(msgspec.Struct, frozen=True):
    """What the JobManager wants, told again and again. ``fulfilled``: it was asked of an attempt before this one, and
    that this attempt exists is all that it wanted."""

    request: ProcedureRequest
    fulfilled: bool = False


class StepDone(msgspec.Struct, frozen=True):
    """``savepoint`` and ``manifest_sha256``: of WRITE_SAVEPOINT. ``warning``: what people should know all the same."""

    trigger_id: str
    step: Step
    savepoint: str = ""
    manifest_sha256: str = ""
    warning: str = ""


class StepFailed(msgspec.Struct, frozen=True):
    """``hangs``: it may still be under way, and go on at any time."""

    trigger_id: str
    step: Step
    reason: str
    hangs: bool = False


class Noted(msgspec.Struct, frozen=True):
    """How far the step has come, for people."""

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
    """Carry the step out; answer with StepDone or StepFailed."""

    step: Step
    request: ProcedureRequest
    reason: str = ""  # of FAIL_ATTEMPT


class Tell(msgspec.Struct, frozen=True):
    """``progress`` has changed: the JobManager should hear of it at once."""


Effect = Run | Tell


class ProcedureMachine:
    """One per attempt. Nothing is in progress at first; ``progress`` is that of the newest request."""

    def __init__(self) -> None:
        self.progress: ProcedureProgress | None = None
        self.calls: list[Step] = []  # every step begun since the request came, for people and tests
        self._request: ProcedureRequest | None = None
        self._ahead: tuple[Step, ...] = ()  # the step under way first
        self._tries = 0
        self._failure = ""  # the way back is under way
        self._released = False

    @property
    def request(self) -> ProcedureRequest | None:
        """The newest one."""
        return self._request

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """``now_ms``: Unix milliseconds."""
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
                return []  # of a step that is over

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
            return []  # told again until this one is over
        if self._request is not None and self._request.procedure.ends_attempt and not self._failure:
            return []  # the job ends
        self._request, self._tries, self._failure, self.calls = request, 0, "", []
        if event.fulfilled:
            self.progress = ProcedureProgress(
                trigger_id=request.trigger_id, phase=ProcedurePhase.FINISHING_BATCHES, started_ms=now_ms
            )
            self._released = True
            return self._end(now_ms, detail="another attempt was started")
        self._released = False
        self._ahead = PLANS[request.procedure]
        self.progress = ProcedureProgress(
            trigger_id=request.trigger_id, phase=_PHASES[self._ahead[0]], started_ms=now_ms
        )
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
        if event.step is Step.SHUTDOWN:  # the savepoint stands, and functions know it: there is no way back
            self._warn(f"a function did not shut down: {event.reason}")
            return self._next(now_ms)
        self._failure = event.reason
        if event.hangs and event.step in _WITH_QUERIES:
            return self._fail_attempt(now_ms)
        self._ahead = (event.step, *_way_back(self._request.procedure, self.calls))
        return self._next(now_ms)

    def _way_back_failed(self, event: StepFailed, now_ms: int) -> list[Effect]:
        assert self._request is not None  # noqa: S101
        if event.step is Step.DISCARD_SAVEPOINT:
            return self._next(now_ms)  # what is left of it is no savepoint, or one that nobody was told of
        self._failure = f"{self._failure}; and the queries could not be started again: {event.reason}"
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


def _way_back(procedure: Procedure, begun: list[Step]) -> tuple[Step, ...]:
    """What is to be undone of the steps that were begun, whether they succeeded or not."""
    steps = []
    if Step.PAUSE in begun and Step.RESUME not in begun:
        steps.append(Step.RESUME)
    if Step.WRITE_SAVEPOINT in begun:
        steps.append(Step.DISCARD_SAVEPOINT)
    if Step.RETAIN_BATCHES in begun:
        steps.append(Step.RELEASE_BATCHES)
    if procedure.ends_attempt:  # also where no step has ended them: the queries of a later attempt start ended
        steps.append(Step.START_QUERIES)
    return tuple(steps)

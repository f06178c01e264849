"""What the JobManager asks the running job to do, carried out step by step by the machine of ``lifecycle``.

Part of the JobMaster's actor: called from its handlers only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.errors import StepHangs
from emberkeep.lifecycle.machine import (
    Event,
    Noted,
    ProcedureMachine,
    Recorded,
    Requested,
    Run,
    Step,
    StepDone,
    StepFailed,
)
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages import JobMasterReply

log = structlog.get_logger(__name__)


class ProcedureSteps(Protocol):
    """Carries single steps out in the driver's process."""

    async def run(self, step: Step, request: ProcedureRequest, reason: str) -> StepDone:
        """Bounds itself; may be repeated. ``reason``: of FAIL_ATTEMPT. Raises EmberkeepError; StepHangs: what it has
        begun may go on."""

    def noted(self) -> Noted | None:
        """How far the step under way has come, if it has said so."""

    def is_fulfilled(self, request: ProcedureRequest) -> bool:
        """Whether it was asked of an earlier attempt, and that this one exists is all that it wanted."""


class Procedures:
    """``tell``: puts an event into the actor's inbox. ``start``: runs an effect of the actor. ``wake``: the status is
    reported at once. ``steps`` None: this driver can carry nothing out, and says so."""

    def __init__(
        self,
        clock: Clock,
        tell: Callable[[Any], None],
        start: Callable[[str, Coroutine[Any, Any, None]], object],
        wake: Callable[[], None],
    ) -> None:
        self.steps: ProcedureSteps | None = None
        self._clock = clock
        self._tell = tell
        self._start = start
        self._wake = wake
        self._machine = ProcedureMachine()

    def progress(self) -> ProcedureProgress | None:
        """Of the newest request."""
        self._take_note()
        return self._machine.progress

    def take(self, reply: JobMasterReply) -> None:
        """What the JobManager wants, and has recorded."""
        if reply.procedure_recorded:
            self.handle(Recorded(reply.procedure_recorded))
        if reply.procedure is not None:
            fulfilled = self.steps is not None and self.steps.is_fulfilled(reply.procedure)
            self.handle(Requested(reply.procedure, fulfilled=fulfilled))

    def handle(self, event: Event) -> None:
        if isinstance(event, StepDone | StepFailed):
            self._take_note()  # nobody may have asked while the step lasted
        for effect in self._machine.handle(event, self._clock.now_ms()):
            if isinstance(effect, Run):
                log.info("procedure", step=effect.step.value, procedure=effect.request.procedure.value)
                self._start(f"step {effect.step.value}", self._run(effect))
            else:
                self._wake()

    def _take_note(self) -> None:
        note = None if self.steps is None else self.steps.noted()
        if note is not None:
            self._machine.handle(note, self._clock.now_ms())

    async def _run(self, effect: Run) -> None:
        trigger_id = effect.request.trigger_id
        if self.steps is None:
            self._tell(StepFailed(trigger_id, effect.step, "this job's driver can carry out no procedure"))
            return
        try:
            done = await self.steps.run(effect.step, effect.request, effect.reason)
        except EmberkeepError as error:
            log.warning("a step has failed", step=effect.step.value, reason=str(error))
            self._tell(StepFailed(trigger_id, effect.step, str(error), hangs=isinstance(error, StepHangs)))
        else:
            self._tell(done)

"""Procedures in the driver: what the JobManager asks the running job to do, one step at a time.

The state machine in ``lifecycle`` decides the steps. This is part of the JobMaster's actor: only its handlers call it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.inert_text import encodable
from emberkeep.lifecycle.errors import NeverPossible, StepHangs
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
from emberkeep.protocol.messages.job_masters import JobMasterReply

log = structlog.get_logger(__name__)


class ProcedureSteps(Protocol):
    """Carries out single steps in the driver's process."""

    async def run(self, step: Step, request: ProcedureRequest, reason: str) -> StepDone:
        """Run one step. It bounds its own time and may be repeated. ``reason``: for FAIL_ATTEMPT.

        Raises EmberkeepError; StepHangs if work that the step has begun may still run.
        """

    def noted(self) -> Noted | None:
        """Return the progress of the step under way, or None if there is no progress to report."""

    def is_fulfilled(self, request: ProcedureRequest) -> bool:
        """True if an earlier attempt got this request and the start of the current attempt fulfils it."""


class Procedures:
    """Runs the current procedure of one attempt.

    ``tell`` puts an event into the actor's inbox, ``start`` runs an effect of the actor, ``wake`` reports the status at
    once. While ``steps`` is None, this driver can run no step, and each step fails with that as its reason.
    """

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
        """Return the progress of the newest request, or None if there was none."""
        self._take_note()
        return self._machine.progress

    def take(self, reply: JobMasterReply) -> None:
        """Take the JobManager's current request, and the request whose end it has recorded."""
        if reply.procedure_recorded:
            self.handle(Recorded(reply.procedure_recorded))
        if reply.procedure is not None:
            fulfilled = self.steps is not None and self.steps.is_fulfilled(reply.procedure)
            self.handle(Requested(reply.procedure, fulfilled=fulfilled))

    def handle(self, event: Event) -> None:
        if isinstance(event, StepDone | StepFailed):
            self._take_note()  # keep the step's last progress: no status may have read it yet
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
            self._tell(StepFailed(trigger_id, effect.step, "this job's driver cannot carry out procedures"))
            return
        try:
            done = await self.steps.run(effect.step, effect.request, effect.reason)
        except EmberkeepError as error:
            log.warning("a step has failed", step=effect.step.value, reason=str(error))
            self._tell(
                StepFailed(
                    trigger_id,
                    effect.step,
                    encodable(str(error)),  # a user function's own words may be part of it
                    hangs=isinstance(error, StepHangs),
                    impossible=isinstance(error, NeverPossible),
                )
            )
        else:
            self._tell(done)

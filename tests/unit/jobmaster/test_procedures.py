"""Requests from the JobManager's replies, step by step to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Fatal
from emberkeep.jobmaster.procedures import Procedures
from emberkeep.lifecycle.machine import Noted, Step, StepDone
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages.job_masters import JobMasterReply

REQUEST = ProcedureRequest(trigger_id="f" * 32, procedure=Procedure.SUSPEND, target_directory="file:///s")


class Steps:
    """Carries out what it is told; ``failing`` does not succeed, for the ``reason``."""

    def __init__(self, failing: Step | None = None, reason: str = "the disk is full") -> None:
        self.done: list[Step] = []
        self.failing = failing
        self.reason = reason

    async def run(self, step: Step, request: ProcedureRequest, reason: str) -> StepDone:
        del reason
        self.done.append(step)
        if step is self.failing:
            raise Fatal(self.reason)
        return StepDone(request.trigger_id, step, "file:///s/savepoint", "ab" * 32)

    def noted(self) -> Noted | None:
        if not self.done:
            return None
        files = 2 if Step.WRITE_SAVEPOINT in self.done else 0
        return Noted(REQUEST.trigger_id, f"after {self.done[-1].value}", files_done=files, files_total=files)

    def is_fulfilled(self, request: ProcedureRequest) -> bool:
        return request.procedure is Procedure.MOVE


class Actor:
    """An inbox that is emptied at once, and the effects that it has started."""

    def __init__(self, steps: Steps | None) -> None:
        self.woken = 0
        self._effects: list[Coroutine[Any, Any, None]] = []
        self.procedures = Procedures(SystemClock(), self._tell, self._start, self._wake)
        self.procedures.steps = steps

    def _tell(self, event: Any) -> None:
        self.procedures.handle(event)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        del name
        self._effects.append(work)

    def _wake(self) -> None:
        self.woken += 1

    def hear(self, reply: JobMasterReply) -> ProcedureProgress | None:
        self.procedures.take(reply)
        while self._effects:
            asyncio.run(self._effects.pop(0))
        return self.procedures.progress()


def _reply(request: ProcedureRequest | None = None, recorded: str = "") -> JobMasterReply:
    return JobMasterReply(epoch=1, known=True, heartbeat_interval=1.0, procedure=request, procedure_recorded=recorded)


@pytest.mark.req("END-3", "END-5")
def test_a_request_is_carried_out_once_and_the_script_goes_on_when_its_end_is_recorded() -> None:
    steps = Steps()
    actor = Actor(steps)

    progress = actor.hear(_reply(REQUEST))

    assert progress is not None
    assert (progress.phase, progress.savepoint) == (ProcedurePhase.COMPLETED, "file:///s/savepoint")
    assert (progress.files_done, progress.files_total) == (2, 2), "though nobody has asked meanwhile"
    assert actor.woken >= 2, "phases are told at once"
    told = list(steps.done)
    actor.hear(_reply(REQUEST))
    assert steps.done == told
    actor.hear(_reply(recorded=REQUEST.trigger_id))
    actor.hear(_reply(recorded=REQUEST.trigger_id))
    assert steps.done == [*told, Step.END_SCRIPT_WAIT]


@pytest.mark.req("END-6")
def test_a_savepoint_that_fails_says_why_and_the_queries_start_again() -> None:
    steps = Steps(failing=Step.WRITE_SAVEPOINT)

    progress = Actor(steps).hear(_reply(REQUEST))

    assert progress is not None
    assert (progress.phase, progress.failure) == (ProcedurePhase.FAILED, "the disk is full")
    assert steps.done[-2:] == [Step.DISCARD_SAVEPOINT, Step.START_QUERIES]


def test_a_reason_that_is_not_utf_8_can_be_told() -> None:
    progress = Actor(Steps(Step.SNAPSHOT_STATE, "ValueError: cannot parse caf\udce9")).hear(_reply(REQUEST))

    assert progress is not None
    assert progress.failure == "ValueError: cannot parse caf\\udce9"
    assert msgspec.msgpack.encode(progress), "the driver's heartbeats contain it"


def test_a_move_that_was_made_and_a_driver_that_can_nothing() -> None:
    move = ProcedureRequest(trigger_id="1" * 32, procedure=Procedure.MOVE)
    made = Actor(Steps()).hear(_reply(move))
    unable = Actor(None).hear(_reply(REQUEST))

    assert made is not None
    assert made.phase is ProcedurePhase.COMPLETED
    assert unable is not None
    assert "cannot carry out procedures" in unable.failure

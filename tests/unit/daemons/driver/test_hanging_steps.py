"""Steps that do not end hold nothing up: they are let alone, and others are carried out beside them."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from emberkeep.base.clock import Clock
from emberkeep.daemons.driver import procedures as driver_procedures
from emberkeep.daemons.driver.procedures import DriverProcedures
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.lifecycle.errors import StepHangs
from emberkeep.lifecycle.machine import Step, StepDone
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit

SECONDS = 240.0
REQUEST = ProcedureRequest(trigger_id="f" * 32, procedure=Procedure.DRAIN, target_directory="/savepoints")


class Queries:
    """``released``: until then a drain and the removal of a savepoint hang."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.started = 0
        self.finishing_limit = NO_LIMIT
        self.pauses = self.restarts = self  # the parts of QueryProcedures

    def drain(self, note: Any) -> str:
        note("draining")
        assert self.released.wait(SECONDS)
        return "timers were left"

    def discard_savepoint(self, directory: str) -> None:
        assert directory.startswith("/savepoints/savepoint-")
        assert self.released.wait(SECONDS)

    def finish_batches(self, note: Any, limit: Limit) -> None:
        del note
        self.finishing_limit = limit
        assert self.released.wait(SECONDS)

    def pause(self, note: Any, limit: Any) -> None:
        del note, limit
        assert self.released.wait(SECONDS)

    def resume(self) -> None:
        self.started += 1

    def start_queries(self) -> None:
        self.started += 1


def steps_of(queries: Queries) -> DriverProcedures:
    spec = SimpleNamespace(graph=SimpleNamespace(job_id="a" * 32), attempt=1, procedure=None)
    clock = SimpleNamespace(now_ms=lambda: 0)
    runtime: Any = SimpleNamespace(procedures=queries)

    async def leave(_: object) -> None:
        raise AssertionError("nothing ends this driver")

    return DriverProcedures(
        cast(DriverSpec, spec), cast(Clock, clock), lambda: runtime, lambda: None, leave, step_seconds=0.1
    )


@pytest.mark.req("END-6")
@pytest.mark.parametrize("step", [Step.DRAIN, Step.DISCARD_SAVEPOINT])
def test_one_that_hangs_has_failed_and_the_next_one_does_not_wait_for_it(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_procedures, "_GRACE", 0.1)
    queries = Queries()

    async def scenario() -> None:
        steps = steps_of(queries)
        with pytest.raises(StepHangs, match=f"step {step.value} did not end within 0 s"):
            await steps.run(step, REQUEST, "")
        async with asyncio.timeout(SECONDS):
            assert await steps.run(Step.START_QUERIES, REQUEST, "") == StepDone(REQUEST.trigger_id, Step.START_QUERIES)
        queries.released.set()

    asyncio.run(scenario())
    assert queries.started == 1


def test_batches_have_their_own_deadline_and_a_drain_says_what_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_procedures, "_GRACE", 0.1)
    queries = Queries()

    async def scenario() -> None:
        steps = steps_of(queries)
        finishing = asyncio.create_task(steps.run(Step.FINISH_BATCHES, REQUEST, ""))
        done, _ = await asyncio.wait({finishing}, timeout=1.0)
        assert not done
        queries.released.set()
        assert await finishing == StepDone(REQUEST.trigger_id, Step.FINISH_BATCHES)
        assert (await steps.run(Step.DRAIN, REQUEST, "")).warning == "timers were left"

    asyncio.run(scenario())


def test_batches_that_hang_past_the_deadline_fail_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage of the checkpoints does not answer: whether a batch is planned cannot be read."""
    monkeypatch.setattr(driver_procedures, "_GRACE", 0.1)
    queries = Queries()

    async def scenario() -> None:
        steps = steps_of(queries)
        async with asyncio.timeout(SECONDS):
            with pytest.raises(StepHangs, match=r"did not end within 0 s.*storage of the checkpoints.*cancel"):
                await steps.run(Step.FINISH_BATCHES, msgspec.structs.replace(REQUEST, deadline_ms=100), "")
        queries.released.set()

    asyncio.run(scenario())


def test_a_planned_batch_may_run_past_the_deadline_for_as_long_as_its_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_procedures, "_GRACE", 0.1)

    class Planned(Queries):
        def finish_batches(self, note: Any, limit: Limit) -> None:
            self.finishing_limit = Limit(time.monotonic() + 3.0)
            assert self.released.wait(SECONDS)

    queries = Planned()

    async def scenario() -> None:
        steps = steps_of(queries)
        request = msgspec.structs.replace(REQUEST, deadline_ms=100)
        finishing = asyncio.create_task(steps.run(Step.FINISH_BATCHES, request, ""))
        done, _ = await asyncio.wait({finishing}, timeout=1.0)
        assert not done
        with pytest.raises(StepHangs, match="did not end within 3 s"):
            await finishing
        queries.released.set()

    asyncio.run(scenario())


def test_a_pause_that_hangs_past_the_deadline_lets_the_queries_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_procedures, "_GRACE", 0.1)
    queries = Queries()

    async def scenario() -> None:
        steps = steps_of(queries)
        request = msgspec.structs.replace(REQUEST, procedure=Procedure.SAVEPOINT, deadline_ms=100)
        async with asyncio.timeout(SECONDS):
            with pytest.raises(StepHangs, match=f"step {Step.PAUSE.value} did not end"):
                await steps.run(Step.PAUSE, request, "")
            assert await steps.run(Step.RESUME, request, "") == StepDone(REQUEST.trigger_id, Step.RESUME)
        queries.released.set()

    asyncio.run(scenario())
    assert queries.started == 1

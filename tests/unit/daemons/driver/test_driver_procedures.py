"""Where the attempts of a job write the savepoint of one request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from emberkeep.base.clock import Clock, SystemClock
from emberkeep.base.ids import JobId
from emberkeep.daemons.driver.procedures import DriverProcedures
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.lifecycle.machine import Step
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.stopping.limit import Limit
from emberkeep.spark.stopping.savepoint_copy import Written

JOB = JobId("0123456789abcdef0123456789abcdef")
REQUEST = ProcedureRequest(trigger_id="f" * 32, procedure=Procedure.SUSPEND, target_directory="/s")
OTHER = ProcedureRequest(trigger_id="e" * 32, procedure=Procedure.SUSPEND, target_directory="/s")


class Queries:
    """What is done to which savepoint."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def check(self, directory: str, *_: object) -> None:
        self.done.append(("check", directory))

    def write_savepoint(self, heading: object, directory: str, *_: object) -> Written:
        self.done.append(("write", directory))
        return Written(directory, "")

    def discard_savepoint(self, directory: str) -> None:
        self.done.append(("discard", directory))


async def done_by(attempt: int, asked_before: ProcedureRequest | None, *steps: Step) -> list[tuple[str, str]]:
    graph = SimpleNamespace(job_id=JOB, name="flights")
    spec: Any = SimpleNamespace(graph=graph, attempt=attempt, procedure=asked_before)
    queries = Queries()
    runtime = cast(DriverRuntime, SimpleNamespace(procedures=queries))
    procedures = DriverProcedures(cast(DriverSpec, spec), SystemClock(), lambda: runtime, lambda: None, cast(Any, None))
    for step in steps:
        await procedures.run(step, REQUEST, "")
    return queries.done


def place(attempt: int) -> str:
    return f"/s/savepoint-01234567-ffffffffffff-{attempt}"


@pytest.mark.req("HA-7", "END-6")
async def test_each_attempt_has_its_own_place_and_removes_what_earlier_ones_have_left() -> None:
    steps = (Step.CHECK, Step.WRITE_SAVEPOINT, Step.DISCARD_SAVEPOINT)
    own = [("write", place(3)), ("discard", place(3))]
    assert await done_by(3, None, *steps) == [("check", place(3)), *own]
    assert await done_by(3, OTHER, *steps) == [("check", place(3)), *own]
    left = [("discard", place(1)), ("discard", place(2))]
    assert await done_by(3, REQUEST, *steps) == [("check", place(3)), *left, *own]
    assert len(await done_by(1_000, REQUEST, Step.CHECK)) < 50


@pytest.mark.req("END-6")
async def test_a_clock_that_jumps_while_a_stop_runs_changes_nothing_of_its_time() -> None:
    given: list[Limit] = []

    class Pauses:
        def pause(self, _: object, limit: Limit) -> None:
            given.append(limit)

        def finish_batches(self, _: object, limit: Limit) -> None:
            given.append(limit)

    jumped_ms = 0
    clock = cast(Clock, SimpleNamespace(now_ms=lambda: 10_000 + jumped_ms))
    spec: Any = SimpleNamespace(graph=SimpleNamespace(job_id=JOB, name="flights"), attempt=1, procedure=None)
    runtime = cast(DriverRuntime, SimpleNamespace(procedures=Pauses()))
    procedures = DriverProcedures(cast(DriverSpec, spec), clock, lambda: runtime, lambda: None, cast(Any, None))
    asked = msgspec.structs.replace(REQUEST, requested_ms=9_000, deadline_ms=309_000)

    await procedures.run(Step.PAUSE, asked, "")
    jumped_ms = 10**12
    await procedures.run(Step.FINISH_BATCHES, asked, "")
    assert given[0] == given[1]
    assert 0 < (given[0].seconds_left or 0) <= 299

    jumped_ms = -(10**12)  # behind the clock of the JobManager, which has set the deadline
    await procedures.run(Step.PAUSE, msgspec.structs.replace(asked, trigger_id="d" * 32), "")
    assert 0 < (given[2].seconds_left or 0) <= 300

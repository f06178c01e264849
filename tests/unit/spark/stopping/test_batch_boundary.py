"""Ending queries between two batches, beside threads that look at their state as Spark's do."""

from __future__ import annotations

import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.errors import ProcedureRefused
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping import batch_boundary
from emberkeep.spark.stopping.batch_boundary import (
    Note,
    check_has_boundaries,
    end_between_batches,
    starting_ended,
    was_interrupted,
)
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit
from emberkeep.spark.stopping.plan_gate import PlanGate, PlanRefused

SECONDS = 240.0
PACKAGE = "org.apache.spark.sql.execution.streaming.runtime"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_boundary, "_PAUSE", 0.002)


class JavaClass:
    def __init__(self, name: str, states: dict[str, Any]) -> None:
        self._name, self._states = name, states

    def getName(self) -> str:  # noqa: N802 - Java's
        return self._name

    def getClassLoader(self) -> JavaClass:  # noqa: N802
        return self

    def loadClass(self, name: str) -> JavaClass:  # noqa: N802
        return JavaClass(name, self._states)

    def getField(self, _: str) -> JavaClass:  # noqa: N802
        return self

    def get(self, _: object) -> Any:
        return self._states[self._name]


class JavaState:
    def __init__(self, name: str, states: dict[str, Any]) -> None:
        self._class = JavaClass(f"{PACKAGE}.{name}$", states)
        states[f"{PACKAGE}.{name}$"] = self

    def getClass(self) -> JavaClass:  # noqa: N802
        return self._class


class JavaFailure(Exception):
    def __init__(self, text: str, cause: JavaFailure | None = None) -> None:
        super().__init__(text)
        self._cause = cause

    def toString(self) -> str:  # noqa: N802
        return str(self)

    def getMessage(self) -> str:  # noqa: N802
        return str(self)

    def getCause(self) -> JavaFailure | None:  # noqa: N802
        return self._cause


class Option:
    def __init__(self, found: JavaFailure | None) -> None:
        self._found = found

    def isDefined(self) -> bool:  # noqa: N802
        return self._found is not None

    def get(self) -> JavaFailure | None:
        return self._found


class Query(threading.Thread):
    """Runs batches as MicroBatchExecution does: it looks at its state before each trigger and after it. One object is
    Spark's StreamingQuery, its execution and its status."""

    def __init__(self, batch: Any, sleeps: bool = False) -> None:
        super().__init__(daemon=True)
        self.id = f"query-{id(self)}"
        self.batches = 0
        self._states: dict[str, Any] = {}
        self._active, self._terminated = JavaState("ACTIVE", self._states), JavaState("TERMINATED", self._states)
        self._state = self._active
        self._lock = threading.Lock()
        self._trigger = False
        self._batch = batch
        self._sleeps = sleeps
        self._woken = threading.Event()
        self._jsq = self
        self.interrupted = False
        self.failure: JavaFailure | None = None
        self.execution, self.trigger_class = "MicroBatchExecution", "ProcessingTimeTrigger"
        self.start()

    def run(self) -> None:
        while self._state is self._active:
            self._trigger = True
            try:
                self._batch(self)
            except JavaFailure as failure:
                self.failure = failure
                break
            self.batches += 1
            self._trigger = False
            if self._state is not self._active:
                break
            if self._sleeps and self._woken.wait(SECONDS):
                break
        self._state = self._terminated

    # The state.

    def get(self) -> Any:
        return self._state

    def set(self, state: Any) -> None:
        self._state = state

    def compareAndSet(self, expected: Any, state: Any) -> bool:  # noqa: N802
        with self._lock:
            if self._state is not expected:
                return False
            self._state = state
            return True

    # The query.

    def isActive(self) -> bool:  # noqa: N802
        return self._state is self._active

    def wait_for_end(self, seconds: float) -> None:
        self.join(seconds)

    def isTriggerActive(self) -> bool:  # noqa: N802
        return self._trigger

    def stop(self) -> None:
        assert not self._trigger, "a batch would be interrupted"
        self._woken.set()

    def exception(self) -> Any:
        return Option(self.failure)

    def getClass(self) -> JavaClass:  # noqa: N802
        return JavaClass(f"{PACKAGE}.{self.execution}", self._states)

    def streamingQuery(self) -> Any:  # noqa: N802
        return Execution(self)

    def status(self) -> Query:
        return self


class PlannedQuery(Query):
    """Plans its batches at a gate. As Spark 4.3 does, it looks at its state once more when a batch is planned."""

    def __init__(self, plans: PlanGate, batch: Any) -> None:
        self._plans = plans
        self.planned = -1
        super().__init__(batch)

    def run(self) -> None:
        while self._state is self._active:
            self._trigger = True
            try:
                with self._plans.planning(self.id, self.batches):
                    self.planned = self.batches
            except PlanRefused:
                assert self._state is self._terminated, "Spark would take the refusal for a failure"
                break
            if self._state is not self._active:
                self.interrupted = True
                break
            self._batch(self)
            self.batches += 1
            self._plans.committed(self.id, self.planned)
            self._trigger = False
        self._trigger = False
        self._state = self._terminated


class Execution:
    def __init__(self, query: Query) -> None:
        self._query = query

    def state(self) -> Query:
        return self._query

    def queryExecutionThread(self) -> JavaThread:  # noqa: N802
        return JavaThread(self._query)

    def trigger(self) -> Trigger:
        return Trigger(self._query.trigger_class)

    def getClass(self) -> JavaClass:  # noqa: N802
        return self._query.getClass()


class JavaThread:
    def __init__(self, query: Query) -> None:
        self._query = query

    def isAlive(self) -> bool:  # noqa: N802
        return self._query.is_alive()

    def isInterrupted(self) -> bool:  # noqa: N802
        return self._query.interrupted

    def join(self, milliseconds: int) -> None:
        assert milliseconds > 0, "Java would wait without end"
        self._query.wait_for_end(milliseconds / 1000)


class Trigger:
    def __init__(self, name: str) -> None:
        self._class = JavaClass(f"org.apache.spark.sql.execution.streaming.{name}", {})

    def getClass(self) -> JavaClass:  # noqa: N802
        return self._class


def scripts(query: Query, name: str = "q") -> ScriptQuery:
    return ScriptQuery(
        writer=None,
        method="start",
        positional=(),
        named={},
        key=f"query-{name}",
        name=name,
        identity=QueryIdentity("json", "append", "/out"),
        started=StartedQuery(None),
        reached=None,
        fields=[],
        handle=query,
    )


def ended_between_batches(queries: list[ScriptQuery], note: Note, limit: Limit, plans: PlanGate | None = None) -> None:
    """Without ``plans`` nothing is known about what the queries plan: Spark does not let it be seen, or not yet."""
    end_between_batches(queries, PlanGate() if plans is None else plans, note, limit)


def nothing(_: str) -> None:
    pass


def soon() -> Limit:
    return Limit(time.monotonic() + 0.02)


class WhenEnded(Limit):
    """Over as soon as this query has ended."""

    def __init__(self, query: Query) -> None:
        super().__init__(0.0)
        object.__setattr__(self, "_query", query)

    @property
    def is_over(self) -> bool:
        query: Query = self.__dict__["_query"]
        return not query.is_alive()


def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ended(query: Query) -> bool:
    query.join(SECONDS)
    return not query.is_alive()


def test_the_batch_that_runs_is_the_last_one() -> None:
    query = Query(lambda _: time.sleep(0.02))
    until(lambda: query.batches)
    ended_between_batches([scripts(query)], nothing, NO_LIMIT)
    assert not query.is_alive()


@pytest.mark.req("END-6")
@pytest.mark.parametrize(
    ("execution", "trigger", "words"),
    [
        ("ContinuousExecution", "ContinuousTrigger", "runs as ContinuousExecution, .* a trigger other than continuous"),
        ("AsyncProgressTrackingMicroBatchExecution", "ProcessingTimeTrigger", "no asynchronous progress tracking"),
        ("MicroBatchExecution", "RealTimeTrigger", r"in real-time mode: .* start it with trigger\(processingTime"),
        ("AsyncProgressTrackingMicroBatchExecution", "RealTimeTrigger", r"in real-time mode: .* start it with trigger"),
    ],
)
def test_what_has_no_moment_between_two_batches_is_refused_and_goes_on(
    execution: str, trigger: str, words: str
) -> None:
    query, other = (Query(lambda _: time.sleep(0.001)) for _ in range(2))
    query.execution, query.trigger_class = execution, trigger
    with pytest.raises(ProcedureRefused, match=words):
        check_has_boundaries(scripts(query))
    with pytest.raises(ProcedureRefused, match=words):
        ended_between_batches([scripts(other), scripts(query)], nothing, NO_LIMIT)
    assert query.isActive()
    assert other.isActive()
    for each in (query, other):
        each.execution, each.trigger_class = "MicroBatchExecution", "ProcessingTimeTrigger"
    ended_between_batches([scripts(other), scripts(query)], nothing, NO_LIMIT)


@pytest.mark.req("END-6")
def test_a_batch_that_outlasts_the_limit_goes_on_and_its_query_too() -> None:
    release = threading.Event()
    late, other = Query(lambda _: release.wait(SECONDS)), Query(lambda _: time.sleep(0.001))
    until(lambda: late.isTriggerActive() and other.batches)

    with pytest.raises(ProcedureRefused, match="query 'late' did not end in time: the job continues"):
        ended_between_batches([scripts(late, "late"), scripts(other, "other")], nothing, WhenEnded(other))

    release.set()
    until(lambda: late.batches > 3)
    ended_between_batches([scripts(late, "late")], nothing, NO_LIMIT)
    assert ended(late)


class Planning:
    """A batch that is planned until ``go`` is set, and interrupts itself then where its query is to end."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.dies = threading.Event()

    def __call__(self, query: Query) -> None:
        assert self.go.wait(SECONDS)
        if not query.isActive():
            query.interrupted = True
            assert self.dies.wait(SECONDS)
            interruption = JavaFailure("java.lang.InterruptedException")
            raise JavaFailure("Query q terminated with exception (no cause message)", interruption)
        time.sleep(0.001)


@pytest.mark.req("END-6")
def test_a_batch_that_interrupts_itself_as_its_query_is_to_end_is_no_failure() -> None:
    plan = Planning()
    query = Query(plan)
    until(query.isTriggerActive)
    plan.dies.set()

    def told(_: str) -> None:
        plan.go.set()

    ended_between_batches([scripts(query)], told, NO_LIMIT)
    assert not query.is_alive()
    assert was_interrupted(scripts(query))


@pytest.mark.req("END-6")
def test_a_batch_that_has_interrupted_itself_is_not_let_run_on() -> None:
    """Its query has ended then, though the limit is over."""
    plan = Planning()
    query = Query(plan)
    until(query.isTriggerActive)

    def late(_: str) -> None:
        plan.go.set()
        until(lambda: query.interrupted)
        threading.Timer(0.05, plan.dies.set).start()

    ended_between_batches([scripts(query)], late, Limit(0.0))
    assert not query.is_alive()
    assert was_interrupted(scripts(query))


def test_another_failure_of_a_query_that_is_to_end_is_told() -> None:
    def fails(query: Query) -> None:
        until(lambda: not query.isActive())
        raise JavaFailure("no such column")

    query = Query(fails)
    until(query.isTriggerActive)
    with pytest.raises(Fatal, match="query 'q' has failed: no such column"):
        ended_between_batches([scripts(query)], nothing, NO_LIMIT)
    assert not was_interrupted(scripts(query))


def test_a_query_that_sleeps_until_its_next_trigger_is_woken_however_short_the_limit() -> None:
    query = Query(lambda _: None, sleeps=True)
    until(lambda: query.batches)
    ended_between_batches([scripts(query)], nothing, soon())
    assert ended(query)


@pytest.mark.req("END-6")
@pytest.mark.req("END-5", "END-6")
@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_one_counts_as_sleeping_only_after_several_looks_with_pauses_between(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Or one that has just seen that it may go on, and is about to begin its batch, would be interrupted in it."""
    pauses = [0]

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            pauses[0] += 1
            time.sleep(seconds)

    class Sleeping(Query):
        def wait_for_end(self, seconds: float) -> None:
            pauses[0] += 1
            super().wait_for_end(seconds)

        def stop(self) -> None:
            assert pauses[0] >= batch_boundary._IDLE_LOOKS
            super().stop()

    query = Sleeping(lambda _: None, sleeps=True)
    until(lambda: query.batches and not query.isTriggerActive())
    monkeypatch.setattr(batch_boundary, "time", Clock)
    ended_between_batches([scripts(query)], nothing, Limit(time.monotonic() + seconds))
    assert ended(query)


def test_ends_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_boundary, "_PAUSE", SECONDS)
    queries = [Query(lambda _, seconds=seconds: time.sleep(seconds)) for seconds in (0.02, 0.01)]
    ended_between_batches([scripts(query, str(number)) for number, query in enumerate(queries)], nothing, NO_LIMIT)
    assert all(ended(query) for query in queries)


def test_whoever_wins_a_query_has_ended_or_runs_on() -> None:
    """A batch ends before the limit, just then, or later: its query has ended, or it was refused and runs on."""
    rng = random.Random(5)
    for _ in range(60):
        seconds = rng.uniform(0.0, 0.03)
        query = Query(lambda _, seconds=seconds: time.sleep(seconds))
        until(lambda query=query: query.batches or query.isTriggerActive())
        try:
            ended_between_batches([scripts(query)], nothing, Limit(time.monotonic() + rng.uniform(0.0, 0.01)))
        except ProcedureRefused:
            before = query.batches
            until(lambda query=query, before=before: query.batches > before + 1)
            ended_between_batches([scripts(query)], nothing, NO_LIMIT)
        assert ended(query)
        assert not query.isActive()


@pytest.mark.req("END-5")
def test_no_batch_is_planned_and_then_not_run() -> None:
    """Whenever the stop comes: in a batch, between two of them, while one is being planned, before the first one."""
    rng = random.Random(7)
    for turn in range(100):
        plans, seconds = PlanGate(), rng.uniform(0.0, 0.004)
        query = PlannedQuery(plans, lambda _, seconds=seconds: time.sleep(seconds))
        until(lambda query=query, turn=turn: query.batches >= 1 + turn % 3)
        time.sleep(rng.uniform(0.0, 0.004))
        ended_between_batches([scripts(query)], nothing, NO_LIMIT, plans)
        assert ended(query)
        assert not query.interrupted
        assert query.planned == query.batches - 1


@pytest.mark.req("END-6")
def test_a_query_whose_batch_outlasts_the_limit_plans_again() -> None:
    release, plans = threading.Event(), PlanGate()
    late = PlannedQuery(plans, lambda _: release.wait(SECONDS))
    until(late.isTriggerActive)
    with pytest.raises(ProcedureRefused, match="query 'late' did not end in time: the job continues"):
        ended_between_batches([scripts(late, "late")], nothing, soon(), plans)
    release.set()
    until(lambda: late.batches > 3)
    ended_between_batches([scripts(late, "late")], nothing, NO_LIMIT, plans)
    assert ended(late)
    assert late.planned == late.batches - 1


def test_the_other_queries_plan_while_one_is_ended() -> None:
    plans = PlanGate()
    one, other = (PlannedQuery(plans, lambda _: time.sleep(0.001)) for _ in range(2))
    until(lambda: one.batches and other.batches)
    ended_between_batches([scripts(one)], nothing, NO_LIMIT, plans)
    before = other.batches
    until(lambda: other.batches > before + 3)
    ended_between_batches([scripts(other)], nothing, NO_LIMIT, plans)
    assert ended(one)
    assert ended(other)


def test_only_queries_that_are_new_start_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a procedure starts again, because a stop is given up, must run."""
    ended: list[str] = []
    listeners: list[Any] = []
    execution = SimpleNamespace(set=ended.append)
    monkeypatch.setattr(batch_boundary, "_state_of", lambda each: (each, "TERMINATED"))
    streams = SimpleNamespace(get=lambda _: SimpleNamespace(streamingQuery=lambda: execution))
    session = SimpleNamespace(
        streams=SimpleNamespace(addListener=listeners.append, removeListener=listeners.remove),
        _jsparkSession=SimpleNamespace(streams=lambda: streams),
    )
    with starting_ended(session, lambda identity: identity == "again"):
        (listener,) = listeners
        listener.onQueryStarted(SimpleNamespace(id="again"))
        assert not ended
        listener.onQueryStarted(SimpleNamespace(id="new"))
        assert ended == ["TERMINATED"]
    assert not listeners

"""What a script sees of its queries while they are away. Objects with the same methods stand in for PySpark's."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from emberkeep.spark.model import StartedQuery
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.await_hook import AwaitGate, _Hook
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery

SECONDS = 60.0


class Query:
    """A StreamingQuery: its run ends when told."""

    def __init__(self, identity: str = "1") -> None:
        self.id = identity
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self.awaits = threading.Semaphore(0)  # awaits that have begun

    def exception(self) -> Exception | None:
        return self.failure if self.ended.is_set() else None

    def await_termination(self, timeout: float | None = None) -> bool | None:
        self.awaits.release()
        ended = self.ended.wait(SECONDS if timeout is None else timeout)
        if ended and self.failure is not None:
            raise self.failure
        return ended if timeout is not None else None


class Gate(AwaitGate):
    """A gate that tells who comes to it while it is held."""

    def __init__(self, *, held: bool) -> None:
        super().__init__(Notices(), held=held)
        self.waits = threading.Semaphore(0)

    def wait(self, deadline: float | None = None) -> bool:
        if self.is_held:
            self.waits.release()
        return super().wait(deadline)


class Script:
    """One query of a script, and what its awaits have given."""

    def __init__(self, *, held: bool = False) -> None:
        self.gate = Gate(held=held)
        self.queries = ScriptQueries()
        self.query = Query()
        identity = QueryIdentity("json", "append", "/out")
        self.known = ScriptQuery(None, "start", (), {}, "k", "", identity, StartedQuery(None), None, [], self.query)
        self.queries.add(self.known)
        hook = _Hook(self.gate, self.queries, lambda query: not query.ended.is_set())
        self.wait: Any = hook.around_await(Query.await_termination)
        self.process_all: Any = hook.around_process_all(Query.await_termination)
        self.wait_any: Any = hook.around_await_any(lambda _, timeout=None: self.query.await_termination(timeout))
        self.is_active = hook.is_active
        self.hook = hook

    def take_away(self) -> None:
        self.gate.hold()
        self.known.away = True
        self.query.ended.set()

    def bring_back(self) -> None:
        self.query.failure = None
        self.query.ended = threading.Event()
        self.known.away = False
        self.gate.open()


def _in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - what the script would see
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


@pytest.mark.req("END-6", "END-9")
@pytest.mark.parametrize("which", ["wait", "wait_any"])
def test_an_await_outlasts_a_procedure_that_failed_and_ends_with_one_that_is_recorded(which: str) -> None:
    script = Script()
    target = script.query if which == "wait" else object()
    thread, results = _in_thread(lambda: getattr(script, which)(target))
    assert script.query.awaits.acquire(timeout=SECONDS)

    script.take_away()
    assert script.is_active(script.query)
    assert script.gate.waits.acquire(timeout=SECONDS)
    script.bring_back()
    assert script.is_active(script.query)
    assert script.query.awaits.acquire(timeout=SECONDS)
    script.take_away()
    assert script.gate.waits.acquire(timeout=SECONDS)
    assert not results
    script.gate.end()

    thread.join(SECONDS)
    assert results == [None]
    assert not script.is_active(script.query)


def test_a_timeout_counts_while_a_query_is_away() -> None:
    script = Script()
    script.take_away()

    assert script.wait(script.query, 0.01) is False
    assert script.wait_any(object(), 0.01) is False
    script.gate.end()
    assert script.wait(script.query, SECONDS) is True


def test_a_query_that_ends_by_itself_ends_its_await() -> None:
    script = Script()
    script.query.ended.set()

    assert script.wait(script.query) is None
    assert script.wait_any(object()) is None
    assert not script.is_active(script.query)


def test_a_failure_reaches_the_script_once_nothing_is_held() -> None:
    script = Script()
    script.query.failure = ValueError("bad row")
    script.gate.hold()
    script.query.ended.set()
    thread, results = _in_thread(lambda: script.wait(script.query))
    assert script.gate.waits.acquire(timeout=SECONDS)
    assert not results

    script.gate.open()

    thread.join(SECONDS)
    assert isinstance(results[0], ValueError)


def test_no_query_starts_while_others_are_away_and_none_after_the_end() -> None:
    script = Script(held=True)
    thread, results = _in_thread(lambda: _start(script.gate))
    thread.join(0.05)
    assert not results

    script.gate.open()
    thread.join(SECONDS)
    assert results == ["started"]

    script.gate.hold()
    script.gate.end()
    script.gate.open()  # comes too late
    with pytest.raises(SystemExit) as ended:
        _start(script.gate)
    assert ended.value.code == 0


def test_who_takes_queries_away_waits_for_those_that_are_being_started() -> None:
    gate = AwaitGate(Notices())
    with gate.starting():
        thread, results = _in_thread(gate.hold)
        thread.join(0.05)
        assert not results
    thread.join(SECONDS)
    assert results == [True]
    gate.open()
    with gate.starting():
        assert not gate.hold(0.01), "not for longer than it is told"


@pytest.mark.req("END-5", "END-9")
def test_only_what_a_script_does_after_its_last_start_shows_that_it_has_started_all() -> None:
    """It may look for active queries before each start, or start all of them once more in the next SparkContext."""
    script = Script()
    gate = script.gate

    def seen() -> tuple[bool, bool]:
        return gate.was_awaited, gate.wait_until_awaited(0)

    assert seen() == (False, False)
    assert script.is_active(script.query)
    assert seen() == (True, True)
    _start(gate)
    assert seen() == (False, False)

    thread, results = _in_thread(lambda: script.wait(script.query))
    assert script.query.awaits.acquire(timeout=SECONDS)
    _start(gate)  # from a foreachBatch function, say
    assert seen() == (True, True), "its main thread waits"
    script.query.ended.set()
    thread.join(SECONDS)
    assert results == [None]
    assert seen() == (False, False)


def _start(gate: AwaitGate) -> str:
    with gate.starting():
        return "started"


def test_handles_from_the_manager_are_the_scripts_own() -> None:
    """``for query in spark.streams.active: query.awaitTermination()`` waits as well."""
    script, other = Script(), Query("2")
    found = [Query("1"), other]
    active = script.hook.around_active(lambda _: found)
    get = script.hook.around_get(lambda _, identity: next((each for each in found if each.id == identity), None))

    assert active(object()) == [script.query, other]
    assert get(object(), "1") is script.query
    assert get(object(), "3") is None
    script.take_away()
    found.clear()
    assert active(object()) == [script.query]
    assert get(object(), "1") is script.query
    script.gate.end()
    assert active(object()) == []


@pytest.mark.req("END-6")
@pytest.mark.parametrize("which", ["wait", "wait_any", "process_all"])
def test_a_batch_that_a_procedure_has_interrupted_is_no_failure_of_its_await(which: str) -> None:
    """Spark's exception of such a batch does not count: the procedure has run the batch again."""
    script = Script()
    target = object() if which == "wait_any" else script.query
    thread, results = _in_thread(lambda: getattr(script, which)(target))
    assert script.query.awaits.acquire(timeout=SECONDS)

    script.query.failure = ValueError("java.lang.InterruptedException")
    script.take_away()
    assert script.gate.waits.acquire(timeout=SECONDS)
    script.bring_back()
    assert script.query.awaits.acquire(timeout=SECONDS)
    assert not results
    script.query.failure = ValueError("java.lang.InterruptedException")
    script.take_away()
    assert script.gate.waits.acquire(timeout=SECONDS)
    script.gate.end()

    thread.join(SECONDS)
    assert results == [None]


@pytest.mark.req("END-6")
@pytest.mark.parametrize("which", ["wait", "wait_any", "process_all"])
def test_an_await_after_the_stop_ignores_an_interrupted_batch_as_well(which: str) -> None:
    """As the second of ``for query in queries: query.awaitTermination()``. The query stays away."""
    script = Script()
    script.query.failure = ValueError("java.lang.InterruptedException")
    script.take_away()
    script.gate.end()
    assert getattr(script, which)(object() if which == "wait_any" else script.query) is None

    script.known.away = False  # it had failed by itself
    with pytest.raises(ValueError, match="InterruptedException"):
        getattr(script, which)(object() if which == "wait_any" else script.query)


def test_a_failure_beside_an_interrupted_batch_reaches_the_script() -> None:
    script = Script()
    broken = Query("2")
    other = ScriptQuery(None, "start", (), {}, "o", "", script.known.identity, StartedQuery(None), None, [], broken)
    script.queries.add(other)
    thread, results = _in_thread(lambda: script.wait_any(object()))
    assert script.query.awaits.acquire(timeout=SECONDS)

    script.gate.hold()
    broken.failure = script.query.failure = ValueError("bad row")
    broken.ended.set()
    script.query.ended.set()
    assert script.gate.waits.acquire(timeout=SECONDS)
    assert not results
    script.query.ended = threading.Event()
    script.query.failure = None
    script.gate.open()

    thread.join(SECONDS)
    assert isinstance(results[0], ValueError)


@pytest.mark.req("END-6")
def test_a_stop_by_the_script_is_remembered_while_the_query_is_away_only() -> None:
    script = Script()
    stops: list[Any] = []
    stop = script.hook.around_stop(stops.append)
    stop(script.query)
    remembered = [script.known.is_stopped]
    script.take_away()
    stop(script.query)
    remembered.append(script.known.is_stopped)
    assert remembered == [False, True]
    assert stops == [script.query, script.query], "Spark is asked all the same: a batch may still run"

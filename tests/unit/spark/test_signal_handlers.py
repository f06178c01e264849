"""A signal handler of the script may interrupt the main thread anywhere in Emberkeep, and use Spark there.

``while query.isActive: …`` is interrupted by SIGTERM, and the script's handler asks for ``spark.streams.active`` or
calls ``spark.stop()``. The handler runs in the thread that it interrupts, so it must not wait for a lock that this
thread holds. A trace function stands in for the signal: it calls the handler at each line of the module under test.
"""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import emberkeep
from emberkeep.api.earlier_commits import EarlierCommits
from emberkeep.api.foreach_functions import ForeachObjects
from emberkeep.api.registry import Registry
from emberkeep.base.ids import JobId
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.functions.begun_functions import BegunFunctions
from emberkeep.spark.functions.calls import FunctionCalls
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.functions.worker_port import WorkerPort
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.await_hook import AwaitGate
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.committed_before import CommittedBefore
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.queries.start_hook import QueryHook
from emberkeep.spark.stopping.query_starts import OrderedStarts
from emberkeep.spark.stopping.restarts import QueryRestarts
from emberkeep.spark.work.reader import WorkReader

SECONDS = 10.0
SINK = QueryIdentity("foreachBatch", "append", "jobs.write")


def interrupt(module: type, body: Callable[[], object], handler: Callable[[], object] | None = None) -> list[object]:
    """Run ``body``, call ``handler`` at each line of it in the module of this class, and return the handler's results.

    Without a handler, ``body`` interrupts itself. Fail if it hangs.
    """
    file = sys.modules[module.__module__].__file__
    results: list[object] = []
    failures: list[BaseException] = []

    def trace(frame: types.FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            results.append((handler or body)())  # Python traces nothing in here
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "a handler waits for the thread that it has interrupted"
    assert not failures
    assert results, "nothing was interrupted"
    return results


def query(queries: ScriptQueries, location: str) -> ScriptQuery:
    writer = cast(Any, SimpleNamespace(_spark=None))
    started = StartedQuery(location)
    key = queries.key_for(writer, None, SINK, started)
    handle = SimpleNamespace(id=location, exception=lambda: None)
    return ScriptQuery(writer, "start", (), {}, key, "", SINK, started, location, [], handle)


@pytest.mark.req("END-1")
def test_the_queries_of_a_script_are_known_to_its_handler_wherever_it_interrupts_their_starts() -> None:
    queries = ScriptQueries()
    first = query(queries, "/c/first")
    queries.add(first)

    def start() -> None:
        queries.add(query(queries, "/c/second"))
        queries.quiet_seconds()
        queries.is_starting_again("1")
        queries.of_handle(first.handle)

    seen = interrupt(ScriptQueries, start, lambda: [each.key for each in queries.all()])

    keys = [first.key, "unnamed-1-foreachBatch-append"]
    assert all(each in ([first.key], keys) for each in seen)
    assert [each.key for each in queries.all()] == keys


def test_two_unnamed_queries_never_share_a_key_if_a_handler_starts_one_of_them() -> None:
    queries = ScriptQueries()
    numbers = iter(range(1000))

    def key() -> str:
        return queries.key_for(object(), None, SINK, StartedQuery(f"/c/{next(numbers)}"))

    keys: list[object] = []
    keys += interrupt(ScriptQueries, lambda: keys.append(key()), key)
    assert len(set(keys)) == len(keys)


def test_a_handler_may_stop_spark_while_its_queries_are_cleared() -> None:
    queries = ScriptQueries()
    queries.add(query(queries, "/c/first"))
    interrupt(ScriptQueries, queries.clear)
    assert queries.all() == []


def test_a_handler_may_stop_spark_while_the_script_starts_a_query_or_stops_spark() -> None:
    hook = QueryHook(
        "/c", DirectLocations(), cast(Any, None), None, CommittedBefore({}, Notices()), Notices(), ScriptQueries(),
        cast(Any, None),
    )  # fmt: skip

    def stop_or_watch() -> None:
        hook.progress()
        hook.forget()

    interrupt(QueryHook, stop_or_watch, hook.forget)


def test_a_handler_may_start_a_query_while_another_one_is_restored() -> None:
    prepared: list[str] = []
    restore = cast(Any, SimpleNamespace(prepare=lambda each: prepared.append(each.key)))
    starts = OrderedStarts(AwaitGate(Notices()), restore, cast(Any, None), lambda: None)
    without_checkpoint = SimpleNamespace(key="one", reached=None)
    interrupt(OrderedStarts, lambda: starts.restore(cast(Any, without_checkpoint)))
    assert set(prepared) == {"one"}


def test_a_handler_may_start_a_query_while_others_are_started_again() -> None:
    restarts = QueryRestarts(ScriptQueries(), AwaitGate(Notices()), lambda _: None)
    away = cast(Any, SimpleNamespace(away=True))
    interrupt(QueryRestarts, lambda: restarts.started(away))


def test_a_handler_may_do_what_says_something_while_something_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    notices = Notices()
    interrupt(Notices, lambda: notices.say("once"))
    assert capsys.readouterr().err == "emberkeep: once\n"


def test_a_handler_sees_the_gate_wherever_it_interrupts() -> None:
    gate = AwaitGate(Notices())

    def use() -> None:
        with gate.starting(), gate.awaiting():
            gate.asked()
        gate.wait()

    interrupt(AwaitGate, use, lambda: (gate.is_held, gate.turns, gate.was_awaited, gate.wait()))


class Store:
    """The status store of an application that does nothing."""

    app_id = "app-1"

    def active_jobs(self) -> list[Mapping[str, Any]]:
        return []

    def completed(self) -> tuple[int, int]:
        return 3, 0

    def executors(self) -> list[Mapping[str, Any]]:
        return []

    def active_stages(self) -> tuple[int, list[Mapping[str, Any]]]:
        return 0, []


def test_a_handler_may_stop_spark_while_spark_is_being_stopped() -> None:
    """The work of an application is read once more before it ends."""
    reader = WorkReader()
    works = interrupt(WorkReader, lambda: reader.read(cast(Any, Store())))
    assert {each.completed_jobs for each in cast(Any, works)} == {3}


def test_a_handler_may_ask_for_functions_while_others_are_registered() -> None:
    registry = Registry()
    interrupt(Registry, lambda: registry.add(object()), registry.entries)
    interrupt(Registry, registry.entries, lambda: registry.add(object()))


def test_a_handler_may_begin_and_call_functions_while_others_begin_and_are_called() -> None:
    registry = Registry()
    begun = BegunFunctions(registry, dict, 1.0)
    registry.add(object())
    interrupt(BegunFunctions, begun.begin_all, begun.living)
    calls = FunctionCalls(SECONDS)
    numbers = iter(range(1000))
    assert set(interrupt(FunctionCalls, lambda: calls.call(f"f{next(numbers)}", "close", lambda: 5))) == {5}


def test_a_handler_may_give_spark_an_object_while_another_one_is_given() -> None:
    objects = ForeachObjects()
    other = object()
    interrupt(ForeachObjects, lambda: objects.stand_in(object()), lambda: objects.stand_in(other))


def test_a_handler_may_open_the_port_of_functions_while_it_is_opened() -> None:
    port = WorkerPort("127.0.0.1", 1)
    links = interrupt(WorkerPort, lambda: port.open(lambda *_: None))
    assert len(set(links)) == 1


def test_a_handler_may_ask_for_earlier_commits_while_they_are_noted() -> None:
    commits = EarlierCommits()
    interrupt(EarlierCommits, lambda: commits.note("/c", 5), lambda: commits.newest("/c"))


def test_a_handler_may_need_the_states_of_functions_while_they_are_read(tmp_path: Path) -> None:
    notices = Notices()
    states = FunctionStates(
        f"{tmp_path}", JobId("a" * 32), 1, DirectLocations(), CheckpointPlaces(lambda: None, (), notices),
        lambda: None, notices,
    )  # fmt: skip
    assert all(each == {} for each in interrupt(FunctionStates, lambda: states.begin_with(None, lambda: None)))


OTHER_THREADS_LOCKS = {
    "api/encrypted_connection.py",  # frames must not be mixed
    "api/executor_functions.py",  # in Python workers
    "api/executor_instance.py",  # in Python workers
    "api/function_channel.py",  # frames must not be mixed
    "spark/queries/state_placement.py",  # threads of queries, and one of Emberkeep
}


def test_no_other_lock_waits_for_its_own_holder() -> None:
    """A new ``threading.Lock`` that the script's main thread takes belongs to the tests above, as an RLock."""
    root = Path(emberkeep.__file__).parent
    found = {
        str(path.relative_to(root))
        for folder in ("api", "spark")
        for path in (root / folder).rglob("*.py")
        if re.search(r"threading\.(Lock|Semaphore|BoundedSemaphore)\(", path.read_text(encoding="utf-8"))
    }
    assert found == OTHER_THREADS_LOCKS

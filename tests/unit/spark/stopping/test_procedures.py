"""What is looked at before a savepoint or stop touches anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.lifecycle.errors import NeverPossible, ProcedureRefused, TooLate
from emberkeep.lifecycle.manifest import SavepointFile, described
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.await_hook import AwaitGate
from emberkeep.spark.queries.checkpoint_logs import LogState
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.stopping import procedures, restarts
from emberkeep.spark.stopping.batch_boundary import too_late
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit
from emberkeep.spark.stopping.plan_gate import PlanGate
from emberkeep.spark.stopping.procedures import QueryProcedures
from emberkeep.spark.stopping.query_starts import OrderedStarts
from emberkeep.spark.stopping.restore import Restore
from emberkeep.spark.stopping.savepoint_storage import SavepointStorage, SavepointStorages


class Place:
    """One savepoint's directory. ``fails``: by method."""

    def __init__(self, **fails: EmberkeepError) -> None:
        self.files: dict[str, bytes] = {}
        self.fails = fails
        self.waits = threading.Event()
        self.waits.set()

    def write(self, name: str, data: bytes) -> SavepointFile:
        self.files[name] = data
        if "write" in self.fails:
            raise self.fails["write"]
        return described(name, data)

    def remove(self) -> None:
        self.waits.wait(240)
        if "remove" in self.fails:
            raise self.fails["remove"]
        self.files.clear()


class Storages:
    def __init__(self, place: Place) -> None:
        self._place = place

    def at(self, location: str, files: object) -> SavepointStorage:
        del files
        if location == "s3://":
            raise Fatal("there is no bucket in it")
        return cast(SavepointStorage, self._place)


def query(reached: str | None = "/checkpoints/one") -> ScriptQuery:
    writer = SimpleNamespace(_spark=None)
    started = StartedQuery(reached)
    fields = {"reached": reached, "started": started, "key": str(reached), "session": writer._spark}
    return cast(ScriptQuery, SimpleNamespace(**fields, away=False, is_stopped=False))


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procedures, "HadoopFiles", lambda _: None)
    monkeypatch.setattr(procedures, "runs", lambda _: True)
    monkeypatch.setattr(procedures, "check_has_boundaries", lambda _: None)


def of(place: Place, *queries: ScriptQuery, asked_before: Procedure | None = None) -> QueryProcedures:
    known = ScriptQueries()
    for each in queries:
        known.add(each)
    gate = AwaitGate(Notices(), held=asked_before is not None)
    gate.asked()
    storages = cast(SavepointStorages, Storages(place))
    return QueryProcedures(known, gate, PlanGate(), storages, lambda: None, asked_before)


def check(steps: QueryProcedures, directory: str = "/savepoints/savepoint-1") -> list[str]:
    notes: list[str] = []
    steps.check(directory, notes.append)
    return notes


def test_a_directory_that_can_be_written_is_left_as_it_was() -> None:
    place = Place()
    steps = of(place, query(), query(None))
    assert check(steps) == ["checking that /savepoints/savepoint-1 is writable"]
    assert place.files == {}
    assert steps.gate.is_open, "nothing is held back yet"


@pytest.mark.req("END-6")
@pytest.mark.parametrize("failure", [Fatal("permission denied"), RetryLater("it does not answer")])
@pytest.mark.parametrize("at", ["write", "remove"])
def test_one_that_cannot_is_refused_before_anything_is_touched(at: str, failure: EmberkeepError) -> None:
    place = Place(**{at: failure})
    steps = of(place, query())
    with pytest.raises(ProcedureRefused, match="cannot write a savepoint to /savepoints/savepoint-1: "):
        check(steps)
    assert steps.gate.is_open
    assert not place.files or at == "remove"


def test_a_location_that_means_nothing_is_refused() -> None:
    with pytest.raises(ProcedureRefused, match=r"cannot write a savepoint to s3://: there is no bucket in it"):
        check(of(Place(), query()), "s3://")


@pytest.mark.req("END-6")
def test_one_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procedures, "_TRIAL_SECONDS", 0.1)
    place = Place()
    place.waits.clear()
    with pytest.raises(ProcedureRefused, match="did not answer within 0 s"):
        check(of(place, query()))
    place.waits.set()


@pytest.mark.req("END-6")
def test_without_a_query_that_could_be_restored_it_is_refused_before_any_is_ended() -> None:
    for queries, words in (((), "runs no streaming query"), ((query(None),), "nothing to save")):
        place: Any = Place(write=Fatal("nobody may come here"))
        steps = of(place, *queries)
        with pytest.raises(ProcedureRefused, match=words):
            check(steps)
        assert steps.gate.is_open


@pytest.mark.req("END-6")
def test_a_query_that_has_no_boundaries_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: ScriptQuery) -> None:
        raise ProcedureRefused("it runs in real-time mode")

    monkeypatch.setattr(procedures, "check_has_boundaries", refuse)
    place = Place(write=Fatal("nobody may come here"))
    steps = of(place, query())
    with pytest.raises(ProcedureRefused, match="real-time mode"):
        check(steps)
    assert place.files == {}


@pytest.mark.req("END-4")
def test_queries_that_ended_before_a_drain_let_out_what_they_hold_or_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drained, over, failed = query("/c/away"), query("/c/over"), query("/c/failed")
    drained.away = True
    steps = of(Place(), drained, over, failed)
    asked: list[str | None] = []

    def drain(each: ScriptQuery, *_: object) -> bool:
        asked.append(each.reached)
        return True

    def has_failed(each: ScriptQuery, _: object) -> None:
        if each is failed:
            raise Fatal("query 'failed' has failed: no space left")

    for each in (over, failed):
        each.handle = None
    monkeypatch.setattr(steps._drain, "drain", drain)
    monkeypatch.setattr(procedures, "check_not_failed", has_failed)
    left = steps.drain(lambda _: None)
    assert asked == ["/c/away", "/c/over"]
    assert "had ended before the drain: its remaining state was not emitted" in left
    assert "and is only in the savepoint: query 'failed' has failed" in left


class Streams:
    """A session in the JVM, and its StreamingQueryManager: what its awaits raise stays until it is reset."""

    def __init__(self) -> None:
        self.resets = 0

    def equals(self, other: object) -> bool:
        return self is other

    def resetTerminated(self) -> None:  # noqa: N802 - Spark's name
        self.resets += 1


def ended_query(streams: Streams, failure: Exception | None = None) -> ScriptQuery:
    """A query without a checkpoint that a stop has ended."""
    handle = SimpleNamespace(_jsq=SimpleNamespace(isActive=lambda: False), exception=lambda: failure)
    session = SimpleNamespace(streams=streams, _jsparkSession=streams)
    ended = query(None)
    ended.key, ended.away, ended.handle = str(id(handle)), True, handle
    vars(ended)["session"] = session
    return ended


@pytest.mark.req("END-6")
def test_a_query_that_fails_during_a_stop_is_not_hidden_from_awaits_of_any_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark forgets all ends at once: without this, `awaitAnyTermination` would wait on for the other queries."""
    monkeypatch.setattr(restarts, "was_interrupted", lambda _: False)
    streams, others = Streams(), Streams()
    well, failed, elsewhere = ended_query(streams), ended_query(streams, ValueError("bad row")), ended_query(others)
    steps = of(Place(), well, failed, elsewhere)
    started: list[ScriptQuery] = []

    def start_again(each: ScriptQuery) -> SimpleNamespace:
        started.append(each)
        return SimpleNamespace(_jsq=SimpleNamespace(isActive=lambda: True))

    monkeypatch.setattr(steps._queries, "start_again", start_again)
    steps.gate.hold()
    steps.restarts.start_queries()
    assert started == [well, elsewhere]
    assert steps.gate.is_open
    assert (streams.resets, others.resets) == (0, 1)

    well.away = True  # the next stop fails as well, and no further query has failed
    steps.restarts.start_queries()
    assert streams.resets == 1


@pytest.mark.req("END-6")
def test_a_query_that_failed_during_a_stop_does_not_count_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's start of a query may finish only then: `awaitAnyTermination` must not return for its end."""
    monkeypatch.setattr(restarts, "was_interrupted", lambda _: False)
    streams = Streams()
    late, failed = ended_query(streams), ended_query(streams, ValueError("bad row"))
    late.away = False
    steps = of(Place(), late, failed)
    running = SimpleNamespace(_jsq=SimpleNamespace(isActive=lambda: True))
    monkeypatch.setattr(steps._queries, "start_again", lambda _: running)
    steps.gate.hold()
    steps.restarts.start_queries()
    assert streams.resets == 0

    late.away = True
    steps.restarts.started(late)
    assert streams.resets == 1
    assert not late.away


@pytest.mark.req("END-6")
def test_a_query_that_the_script_stops_during_a_stop_that_fails_stays_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "was_interrupted", lambda _: False)
    streams, others = Streams(), Streams()
    stopped, other = ended_query(streams), ended_query(others)
    steps = of(Place(), stopped, other)
    started: list[ScriptQuery] = []

    def start_again(each: ScriptQuery) -> SimpleNamespace:
        started.append(each)
        return SimpleNamespace(_jsq=SimpleNamespace(isActive=lambda: True))

    monkeypatch.setattr(steps._queries, "start_again", start_again)
    steps.gate.hold()
    stopped.is_stopped = True
    steps.restarts.start_queries()
    assert started == [other]
    assert not stopped.away, "the script sees its end"
    assert (streams.resets, others.resets) == (0, 1), "`awaitAnyTermination` returns for it"


@pytest.mark.req("END-6")
def test_a_query_that_the_script_stops_while_it_is_started_again_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "was_interrupted", lambda _: False)
    streams = Streams()
    query = ended_query(streams)
    steps = of(Place(), query)
    stops: list[str] = []

    def start_again(each: ScriptQuery) -> SimpleNamespace:
        each.is_stopped = True
        return SimpleNamespace(_jsq=SimpleNamespace(isActive=lambda: not stops, stop=lambda: stops.append("stopped")))

    monkeypatch.setattr(steps._queries, "start_again", start_again)
    steps.gate.hold()
    steps.restarts.start_queries()
    assert stops == ["stopped"]
    assert streams.resets == 0, "`awaitAnyTermination` returns for it"


@pytest.mark.req("END-6")
def test_a_query_that_ends_while_others_are_started_again_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "was_interrupted", lambda _: False)
    streams = Streams()
    first, second = ended_query(streams), ended_query(streams)
    steps = of(Place(), first, second)
    started: list[ScriptQuery] = []

    def start_again(each: ScriptQuery) -> SimpleNamespace:
        started.append(each)
        return SimpleNamespace(_jsq=SimpleNamespace(isActive=lambda: each is second or second not in started))

    monkeypatch.setattr(steps._queries, "start_again", start_again)
    steps.gate.hold()
    steps.restarts.start_queries()
    assert started == [first, second]
    assert streams.resets == 0


NO_STATE = ProcedureRefused("query 'orders' cannot be ended between two batches: no state", hint="use PySpark 4.3")


@pytest.mark.parametrize(
    ("starts", "refusal", "is_told"),
    [
        (True, too_late("batch 4 of orders did not end in time"), True),
        (False, too_late("batch 4 of orders did not end in time"), False),
        (True, NO_STATE, False),
        (True, NeverPossible("the query runs in real-time mode", hint="cancel the job"), False),
    ],
)
def test_a_stop_whose_batch_may_start_a_query_says_so_if_the_batch_does_not_end(
    starts: bool, refusal: ProcedureRefused, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start waits for the stop, and the stop for the batch. Other refusals have nothing to do with a start."""
    steps, went_on = of(Place(), query()), threading.Event()

    def start_another() -> None:
        with steps.gate.starting():
            went_on.set()

    def waits_for_the_batch(*_: object) -> None:
        if starts:
            threading.Thread(target=start_another, daemon=True).start()
            until = time.monotonic() + 60
            while not steps.gate.start_waits:
                assert time.monotonic() < until
                time.sleep(0.01)
        raise refusal

    monkeypatch.setattr(procedures, "end_between_batches", waits_for_the_batch)
    with pytest.raises(type(refusal)) as refused:
        steps.finish_batches(lambda _: None)

    assert refused.value.message.startswith(refusal.message)
    assert str(refused.value.hint).startswith(str(refusal.hint)), "what else may help stays"
    assert ("starts another query" in refused.value.message) == is_told
    assert ("foreachBatch" in str(refused.value.hint)) == is_told
    assert not went_on.is_set()
    steps.gate.open()
    assert went_on.wait(60 if starts else 0) == starts
    assert not steps.gate.start_waits


def starts_of(steps: QueryProcedures) -> OrderedStarts:
    return OrderedStarts(steps.gate, cast(Restore, None), steps, lambda: None)


@pytest.mark.req("END-5")
@pytest.mark.parametrize("asked_before", [None, Procedure.SUSPEND])
@pytest.mark.parametrize("name", ["check", "pause", "finish_batches"])
def test_a_query_that_is_being_started_is_not_left_out(
    name: str, asked_before: Procedure | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start may restore a checkpoint, or run a batch that was planned. A savepoint would lack it."""
    monkeypatch.setattr(procedures, "end_between_batches", lambda *_: None)
    monkeypatch.setattr(procedures, "log_state", lambda *_: LogState(planned=4, committed=4))
    steps = of(Place(), query("/c/first"), asked_before=asked_before)
    monkeypatch.setattr(steps.pauses, "pause", lambda *_: None)
    calls: dict[str, Callable[[Limit], None]] = {
        "check": lambda limit: steps.check("/savepoints/savepoint-1", notes.append, limit),
        "pause": lambda limit: steps.pause(notes.append, limit),
        "finish_batches": lambda limit: steps.finish_batches(notes.append, limit),
    }
    notes: list[str] = []
    with starts_of(steps).admitted():
        with pytest.raises(TooLate, match="did not start all its streaming queries in time"):
            calls[name](Limit(time.monotonic()))
        assert steps.gate.is_open == (asked_before is None), "nothing was held for it"
        waiting = threading.Thread(target=calls[name], args=(NO_LIMIT,), daemon=True)
        waiting.start()
        until = time.monotonic() + 240
        while not notes:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert set(notes) == {"waiting for the script to start its streaming queries"}
    steps.gate.asked()
    waiting.join(240)
    assert not waiting.is_alive()


@pytest.mark.req("END-6")
def test_a_drain_that_an_earlier_attempt_has_begun_takes_no_limit_from_later_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fails, and the job continues: the next stop keeps its time limit, and starts wait for it again."""
    limits: list[Limit] = []
    monkeypatch.setattr(procedures, "end_between_batches", lambda *arguments: limits.append(arguments[-1]))
    monkeypatch.setattr(procedures, "log_state", lambda *_: LogState(planned=4, committed=4, drained=True))
    drained = query()
    steps = of(Place(), drained, asked_before=Procedure.DRAIN)
    monkeypatch.setattr(steps._drain, "roll_forward", lambda *_: None)
    assert not steps.before_start(drained)
    over = Limit(time.monotonic())
    steps.finish_batches(lambda _: None, over)
    assert (limits, steps.finishing_limit, steps.takes_starts) == ([NO_LIMIT], NO_LIMIT, True)

    drained.away = False  # its start has failed, say: the script sees that
    steps.start_queries()
    steps.finish_batches(lambda _: None, over)
    assert (limits, steps.finishing_limit, steps.takes_starts) == ([NO_LIMIT, over], over, False)

"""Holding queries between two batches, all of them or those that would outrun a savepoint."""

from __future__ import annotations

import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from emberkeep.spark.stopping.limit import NO_LIMIT, Limit
from emberkeep.spark.stopping.plan_gate import PlanGate, PlanRefused, last_allowed, leave_refusals_out_of_logs

_DEADLINE_SECONDS = 240.0


@contextmanager
def planner(gate: PlanGate, query_id: str, batch: int) -> Iterator[threading.Event]:
    """Plans one batch beside the test; the event says that it has."""
    planned = threading.Event()

    def plan() -> None:
        with gate.planning(query_id, batch):
            planned.set()

    thread = threading.Thread(target=plan)
    thread.start()
    try:
        yield planned
    finally:
        gate.release()
        gate.open()
        thread.join(_DEADLINE_SECONDS)
        assert not thread.is_alive()


def test_a_gate_is_not_waited_for_longer_than_told() -> None:
    gate = PlanGate()
    with gate.planning("q", 1):
        assert not gate.close(Limit(time.monotonic() + 0.1))
        gate.open()
    assert gate.close(Limit(time.monotonic() + 0.1))


@pytest.mark.req("SAFE-18")
@pytest.mark.parametrize(("retained", "ahead"), [(100, 98), (3, 1), (2, 0), (1, 0)])
def test_a_query_may_go_as_far_as_spark_keeps_what_is_copied(retained: int, ahead: int) -> None:
    assert last_allowed(41, retained) == 41 + ahead


class WatchedGate(PlanGate):
    """Tells whether a query stands at its bound."""

    def wait_until_held(self, query_id: str, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: query_id in self._waiting, seconds)


@pytest.mark.req("SAFE-18")
def test_a_query_stands_at_its_bound_until_the_copy_is_done_and_others_go_on() -> None:
    gate = WatchedGate()
    gate.retain({"slow": 7})
    with gate.planning("slow", 7), gate.planning("other", 1_000):
        pass
    with planner(gate, "slow", 8) as planned:
        assert gate.wait_until_held("slow", _DEADLINE_SECONDS)
        assert not planned.is_set()
        assert gate.release().keys() == {"slow"}
        assert planned.wait(_DEADLINE_SECONDS)
    assert gate.release() == {}, "it was told of once"


@pytest.mark.req("SAFE-18")
def test_a_closed_gate_holds_also_what_is_within_its_bound() -> None:
    gate = WatchedGate()
    gate.retain({"q": 7})
    assert gate.close(Limit(time.monotonic() + _DEADLINE_SECONDS))
    with planner(gate, "q", 7) as planned:
        assert not gate.wait_until_held("q", 0.05)
        assert not planned.is_set()
        gate.open()
        assert planned.wait(_DEADLINE_SECONDS)


def test_a_query_that_is_ended_ends_after_the_batch_that_is_planned() -> None:
    gate, ends = PlanGate(), []

    def end(query_id: str) -> bool | None:
        return gate.end(query_id, lambda: ends.append(query_id), NO_LIMIT)

    with gate.planning("running", 4):
        pass
    for batch in (4, 5):
        with gate.planning("between", batch):
            pass
        gate.committed("between", batch)
    gate.committed("restarted", 7)  # a batch that an earlier attempt had planned
    assert [end(query_id) for query_id in ("running", "between", "restarted", "new")] == [False, True, True, None]
    assert ends == ["between", "restarted"]
    gate.committed("running", 4)
    assert ends == ["between", "restarted", "running"]
    with pytest.raises(PlanRefused), gate.planning("new", 0):
        pytest.fail("the plan was not refused")
    assert ends == ["between", "restarted", "running", "new"]
    gate.let_continue("new")
    with gate.planning("new", 0):
        pass
    gate.committed("new", 0)
    assert ends == ["between", "restarted", "running", "new"]


@pytest.mark.parametrize("hold", [lambda gate: gate.close(NO_LIMIT), lambda gate: gate.retain({"q": 0})])
def test_a_plan_that_is_held_is_refused_when_its_query_is_ended(hold: Callable[[PlanGate], object]) -> None:
    gate, refused = PlanGate(), threading.Event()
    hold(gate)

    def plan() -> None:
        with pytest.raises(PlanRefused), gate.planning("q", 1):
            pytest.fail("the plan was not refused")
        refused.set()

    thread = threading.Thread(target=plan)
    thread.start()
    gate.end("q", lambda: None, NO_LIMIT)
    thread.join(_DEADLINE_SECONDS)
    assert refused.is_set()


def test_spark_takes_a_refused_plan_for_an_interruption() -> None:
    """By the pattern with which Spark 4.3 looks through what Python raises (StreamExecution.PROXY_ERROR)."""
    pattern = (
        r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)(java.lang.InterruptedException)"
    )
    assert re.search(pattern, "".join(traceback.format_exception(PlanRefused())))


def test_a_refused_plan_is_no_error_in_the_scripts_log(caplog: pytest.LogCaptureFixture) -> None:
    leave_refusals_out_of_logs()
    log = logging.getLogger("py4j.clientserver")
    for error in (PlanRefused(), ValueError("of the script")):
        log.error("There was an exception while executing the Python Proxy", exc_info=error)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError]

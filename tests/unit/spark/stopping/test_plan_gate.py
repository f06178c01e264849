"""Holding queries between two batches, all of them or those that would outrun a savepoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emberkeep.spark.stopping.limit import Limit
from emberkeep.spark.stopping.plan_gate import PlanGate, last_allowed

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

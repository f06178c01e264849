"""The text about the batch that a query runs, and how often the query's logs are read for it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emberkeep.base.errors import Unavailable
from emberkeep.spark.queries import checkpoint_logs
from emberkeep.spark.queries.checkpoint_logs import LogState
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping import running_batch
from emberkeep.spark.stopping.running_batch import RunningBatch


class Logs:
    """The logs of a query, and a clock. Each read is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.reads, self.state = 100.0, 0, LogState(41, 40, False)
        monkeypatch.setattr(running_batch, "HadoopFiles", lambda _: SimpleNamespace(read_text=str))
        monkeypatch.setattr(running_batch, "log_state", self._read)
        monkeypatch.setattr(checkpoint_logs, "batch_timestamp", lambda _: 60_000)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now)

    def _read(self, *_: object) -> LogState:
        self.reads += 1
        return self.state


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


class Query:
    session = None

    def __init__(self, reached: str | None = "/checkpoint/") -> None:
        self.reached = reached

    def __str__(self) -> str:
        return "query 'flights'"


def batch(reached: str | None = "/checkpoint/") -> RunningBatch:
    return RunningBatch(cast(ScriptQuery, Query(reached)))


def test_the_text_names_the_batch_and_how_long_it_has_run(logs: Logs) -> None:
    assert str(batch()) == "batch 41 of query 'flights' (begun 40 s ago)"


def test_the_logs_are_read_at_most_once_a_second(logs: Logs) -> None:
    running = batch()
    for now in (100.0, 100.9, 101.0, 101.5):
        logs.now = now
        str(running)
    assert logs.reads == 2


def test_between_batches_only_the_query_is_named(logs: Logs) -> None:
    logs.state = LogState(40, 40, False)
    assert str(batch()) == "query 'flights'"


def test_a_query_without_a_checkpoint_has_no_logs_to_read(logs: Logs) -> None:
    assert (str(batch(None)), logs.reads) == ("query 'flights'", 0)


def test_logs_that_cannot_be_read_cost_only_the_number(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> LogState:
        raise Unavailable("no disk")

    running = batch()
    str(running)
    monkeypatch.setattr(running_batch, "log_state", fail)
    logs.now += 1.0
    assert str(running) == "query 'flights'"

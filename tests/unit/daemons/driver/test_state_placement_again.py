"""How often a driver places the state of its queries again while executors come and go."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import ExecutorId
from emberkeep.daemons.driver.spark import bridge as spark_bridge
from emberkeep.daemons.driver.spark.bridge import SparkBridge
from emberkeep.jobmaster.ports import SparkQuestions, SparkView
from emberkeep.spark.driver_runtime import DriverRuntime

DEADLINE_SECONDS = 240.0


class Runtime:
    """A driver whose nodes do not answer until ``nodes_answer``."""

    def __init__(self) -> None:
        self.placed = 0
        self.began, self.nodes_answer = threading.Event(), threading.Event()

    def application_up(self) -> bool:
        return True

    def executors_changed(self) -> None:
        self.placed += 1
        self.began.set()
        assert self.nodes_answer.wait(DEADLINE_SECONDS)


async def test_changes_that_come_faster_than_nodes_answer_are_placed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamic allocation changes executors every few seconds, and a node that is away takes longer than that."""
    executors: list[ExecutorId] = []
    monkeypatch.setattr(spark_bridge, "spark_view", lambda *_: SparkView(executors=frozenset(executors), queries=()))
    bridge, runtime = SparkBridge(Configuration(), lambda _: None), Runtime()
    bridge.runtime = cast(DriverRuntime, runtime)
    for number in range(10):
        executors.append(ExecutorId(str(number)))
        await bridge.view(SparkQuestions())
        assert runtime.began.wait(DEADLINE_SECONDS)
    runtime.nodes_answer.set()
    bridge._placing.shutdown(wait=True)
    assert runtime.placed == 2, "the one that had begun, and one with all that has changed since"

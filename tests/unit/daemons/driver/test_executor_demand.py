"""What dynamic allocation wants, on its way from Spark to the JobMaster."""

from __future__ import annotations

from typing import cast

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import ExecutorId
from emberkeep.daemons.driver.spark.bridge import SparkBridge
from emberkeep.jobmaster import ports
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors.allocation import ExecutorDemand


class Runtime:
    """A driver whose Spark wants three executors, until it is away."""

    def __init__(self) -> None:
        self.is_up = self.answers = True

    def application_up(self) -> bool:
        return self.is_up

    def executor_demand(self) -> ExecutorDemand:
        if not self.answers:
            raise SparkUnavailable("the JVM is gone")
        return ExecutorDemand("app-1", 3, 1, frozenset({"4"}), frozenset({"5"}))


async def test_the_demand_is_passed_on_while_spark_answers() -> None:
    bridge = SparkBridge(Configuration(), lambda _: None)
    assert await bridge.demand() is None, "there is no driver yet"
    runtime = Runtime()
    bridge.runtime = cast(DriverRuntime, runtime)
    assert await bridge.demand() == ports.ExecutorDemand(
        app_id="app-1",
        count=3,
        others=1,
        decommissioned=frozenset({ExecutorId("4")}),
        killed=frozenset({ExecutorId("5")}),
    )
    runtime.answers = False
    assert await bridge.demand() is None
    runtime.is_up = False
    assert await bridge.demand() is None

"""A JobMaster scales its application by the load of its queries; the decisions are in tests/unit/autoscale."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from emberkeep.autoscale.model import AutoscaleSettings
from emberkeep.autoscale.settings import autoscale_settings
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import ExecutorId
from emberkeep.daemons.driver.spark.view import dynamic_allocation
from emberkeep.jobmaster.ports import Application, DynamicAllocation, ExecutorDemand
from emberkeep.jobs.progress.records import ProgressRecord
from emberkeep.spark.executors.allocation import DynamicAllocation as SparkAllocation
from tests.support.simulator.virtual_loop import VirtualClock
from tests.unit.jobmaster.test_service import Bench, Run, application, run

__all__ = ["run"]

SETTINGS = AutoscaleSettings(
    minimum=1, maximum=4, target=0.7, batch_ms=1000, catch_up_ms=60_000, up_pause_ms=1000, down_pause_ms=5000
)


def autoscaled(count: int) -> Application:
    bounds = DynamicAllocation(minimum=1, maximum=4, idle_timeout=30.0, autoscale=SETTINGS)
    return msgspec.structs.replace(application(count), dynamic=bounds, decommissions=True)


async def work(bench: Bench, share: float, resizes: int) -> None:
    """Let a query work for this share of its trigger's interval until Spark is told so many numbers in all."""
    async with asyncio.timeout(60):
        while len(bench.spark.resizes) < resizes:
            now_ms = VirtualClock(bench.loop).now_ms()
            record = ProgressRecord(
                query_id="1",
                run_id="2",
                name="counts",
                batch_id=0,
                triggered_ms=now_ms,
                duration_ms=round(share * 1000),
                rows=100,
                interval_ms=1000,
            )
            bench.spark.reports = [record]
            await asyncio.sleep(0.5)
    count = bench.spark.resizes[-1][0]
    bench.spark.demanded = ExecutorDemand(app_id="app-1", count=count)


def test_spark_is_told_what_the_load_needs_and_the_slots_follow(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.spark.demanded = ExecutorDemand(app_id="app-1", count=0)  # Spark was not told a number yet
        bench.service.master.application_started(autoscaled(1))
        await bench.until(lambda: bench.spark.resizes == [(1, True)])
        assert bench.wanted() == 1
        bench.spark.executors = {ExecutorId("0")}
        await work(bench, 1.2, 2)
        assert bench.spark.resizes[-1] == (2, True)
        await bench.until(lambda: bench.wanted() == 2)
        scaling = bench.status().scaling
        assert scaling is not None
        assert (scaling.wanted, scaling.minimum, scaling.maximum, scaling.autoscaled) == (2, 1, 4, True)
        assert scaling.reason == "query counts needs 120% of its time, above the target of 70%"

        bench.spark.executors |= {ExecutorId("1")}
        await work(bench, 0.1, 3)
        await bench.until(lambda: bench.wanted() == 1)

    run(story)


def test_a_spark_that_does_not_answer_is_told_again(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.spark.hangs = True
        bench.service.master.application_started(autoscaled(3))
        await bench.until(lambda: bench.wanted() == 3)
        await asyncio.sleep(30)
        assert bench.spark.resizes == []
        bench.spark.hangs = False
        await bench.until(lambda: bench.spark.resizes == [(3, True)])
        await asyncio.sleep(30)
        assert bench.spark.resizes == [(3, True)], "once it knows, it is told no more"

    run(story)


def options(**given: str) -> Configuration:
    texts = {f"execution.autoscale.{key.replace('_', '-')}": text for key, text in given.items()}
    return Configuration().with_texts(texts, "test")


def test_the_bounds_come_from_the_options_and_the_job() -> None:
    assert autoscale_settings(Configuration(), 3) is None
    found = autoscale_settings(options(enabled="true", scale_up_pause="30s"), 3)
    assert found is not None
    assert (found.minimum, found.maximum, found.up_pause_ms) == (1, 3, 30_000)
    with pytest.raises(InvalidInput, match="min-executors is 4, more than the maximum of 3"):
        autoscale_settings(options(enabled="true", min_executors="4"), 3)


def test_autoscaling_and_dynamic_allocation_exclude_each_other() -> None:
    by_spark = SparkAllocation(initial=1, minimum=0, maximum=None, idle_seconds=60.0)
    with pytest.raises(InvalidInput, match="only one can decide"):
        dynamic_allocation(by_spark, SETTINGS)
    assert dynamic_allocation(by_spark, None) == DynamicAllocation(minimum=0, maximum=None, idle_timeout=60.0)
    assert dynamic_allocation(None, None) is None
    assert dynamic_allocation(None, SETTINGS) == autoscaled(1).dynamic

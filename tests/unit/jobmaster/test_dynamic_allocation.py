"""A JobMaster follows Spark's dynamic allocation; the decisions are in tests/unit/slots/pool."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import ExecutorId
from emberkeep.jobmaster.ports import Application, DynamicAllocation, ExecutorDemand
from emberkeep.jobmaster.scaling.demand_watch import INTERVAL
from emberkeep.protocol.messages.executors import ReleaseSlot, StartExecutor
from tests.unit.jobmaster.test_service import Bench, Run, application, run

__all__ = ["run"]


def dynamic(count: int, app_id: str = "app-1") -> Application:
    bounds = DynamicAllocation(minimum=0, maximum=4, idle_timeout=30.0)
    return msgspec.structs.replace(application(count, app_id), dynamic=bounds)


def demand(count: int, app_id: str = "app-1", *, killed: str = "", decommissioned: str = "") -> ExecutorDemand:
    return ExecutorDemand(
        app_id=app_id,
        count=count,
        killed=frozenset(ExecutorId(one) for one in killed.split()),
        decommissioned=frozenset(ExecutorId(one) for one in decommissioned.split()),
    )


def test_the_number_of_slots_follows_spark_and_is_reported_at_once(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.spark.demanded = demand(1)
        bench.service.master.application_started(dynamic(1))
        await bench.until(lambda: bench.wanted() == 1, 0.5)
        bench.spark.demanded = demand(3)
        await bench.until(lambda: bench.wanted() == 3, 2 * INTERVAL)
        scaling = bench.status().scaling
        assert scaling is not None
        assert (scaling.wanted, scaling.minimum, scaling.maximum) == (3, 0, 4)

        assert await bench.offer("a", "b", "c") == ("a", "b", "c")
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 3)
        bench.spark.executors = {ExecutorId("0"), ExecutorId("1"), ExecutorId("2")}
        await bench.until(lambda: all(view.registered for view in bench.status().executors))
        bench.spark.demanded = demand(1, killed="1", decommissioned="2")
        await bench.until(lambda: bench.held() == ["a", "c"], 2 * INTERVAL)
        assert [view.dismissed for view in bench.status().executors] == [False, True]
        await bench.until(lambda: len(bench.task_managers[0].asked(ReleaseSlot)) == 1)
        await bench.executor_ends("c", "2", 0)
        await bench.until(lambda: bench.held() == ["a"] and bench.wanted() == 1)
        assert not bench.status().exceptions, "no executor was lost"

    run(story)


def test_what_an_earlier_application_wanted_does_not_count_and_a_fixed_number_is_not_read(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.spark.demanded = demand(4, "app-0")
        bench.service.master.application_started(dynamic(2))
        await bench.until(lambda: bench.wanted() == 2, 0.5)
        reports = bench.status().sequence
        await bench.until(lambda: bench.status().sequence > reports + 2)
        assert bench.wanted() == 2
        bench.service.master.application_started(application(1, "app-0"))
        await bench.until(lambda: bench.wanted() == 1, 0.5)
        reports = bench.status().sequence
        await bench.until(lambda: bench.status().sequence > reports + 2)
        assert (bench.wanted(), bench.status().scaling) == (1, None)

    run(story)


def test_a_spark_that_does_not_answer_delays_nothing_else(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.service.master.application_started(dynamic(2))
        await bench.until(lambda: bench.wanted() == 2, 0.5)
        bench.spark.hangs = True
        bench.spark.demanded = demand(3)
        assert await bench.offer("a") == ("a",)
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 1)
        bench.spark.hangs = False
        await bench.until(lambda: bench.wanted() == 3)

    run(story)

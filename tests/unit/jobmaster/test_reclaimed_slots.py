"""A JobMaster obeys the ceiling in its JobManager's replies; the decisions are in tests/unit/slots/pool."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import ExecutorId
from emberkeep.jobmaster.ports import DynamicAllocation
from emberkeep.protocol.messages.executors import JobMasterBeat, StartExecutor
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat
from emberkeep.slots.model import Reclaim
from tests.unit.jobmaster.test_dynamic_allocation import demand
from tests.unit.jobmaster.test_service import INTERVAL, Bench, Run, application, reply, run

__all__ = ["run"]

pytestmark = pytest.mark.req("RES-6")

ORDER = Reclaim(ceiling=1, reason="job 7 waits")


def orders(bench: Bench, reclaim: Reclaim | None) -> None:
    bench.job_manager.answers[JobMasterHeartbeat] = msgspec.structs.replace(reply(), reclaim=reclaim)


def test_the_ceiling_is_obeyed_down_to_the_smallest_number_and_reported(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bounds = DynamicAllocation(minimum=2, maximum=4, idle_timeout=30.0)
        bench.spark.demanded = demand(3)
        elastic = msgspec.structs.replace(application(3), dynamic=bounds, decommissions=True)
        bench.service.master.application_started(elastic)
        await bench.until(lambda: bench.wanted() == 3)
        assert bench.status().least_slots == 2
        assert await bench.offer("a", "b", "c") == ("a", "b", "c")
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 3)
        bench.spark.executors = {ExecutorId("0"), ExecutorId("1"), ExecutorId("2")}
        await bench.until(lambda: sum(view.registered for view in bench.status().executors) == 3)

        orders(bench, ORDER)
        await bench.until(lambda: bench.wanted() == 2, 3 * INTERVAL)
        beats = bench.task_managers[0].asked
        await bench.until(lambda: any(beat.decommissioned == ("c",) for beat in beats(JobMasterBeat)))
        status = bench.status()
        assert status.reclaim == Reclaim(ceiling=2, reason="job 7 waits"), "it keeps what it must keep"
        assert (status.given_back, status.executors_wanted) == (1, 3)
        assert status.waiting == "1 slot is given back: job 7 waits"
        assert [view.departure is not None for view in status.executors] == [False, False, True]

        await bench.executor_ends("c", "2", 0)
        await bench.until(lambda: bench.held() == ["a", "b"])
        orders(bench, None)
        await bench.until(lambda: bench.wanted() == 3, 3 * INTERVAL)
        assert bench.status().reclaim is None
        assert not bench.status().exceptions, "no executor was lost"

    run(story)


def test_an_attempt_that_is_put_back_keeps_nothing_whatever_its_smallest_number_is(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.service.master.application_started(msgspec.structs.replace(application(2), decommissions=True))
        await bench.until(lambda: bench.wanted() == 2)
        order = Reclaim(ceiling=0, reason="job 7 waits", whole=True)
        orders(bench, order)
        await bench.until(lambda: bench.wanted() == 0, 3 * INTERVAL)
        status = bench.status()
        assert (status.reclaim, status.given_back, status.executors_wanted) == (order, 2, 2)
        orders(bench, None)
        await bench.until(lambda: bench.wanted() == 2, 3 * INTERVAL)

    run(story)


def test_a_fixed_number_can_give_back_all_but_one_and_who_cannot_hand_over_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        assert bench.status().least_slots == 0, "there is no application yet"
        bench.service.master.application_started(msgspec.structs.replace(application(2), decommissions=True))
        await bench.until(lambda: bench.status().least_slots == 1)
        bench.service.master.application_started(application(2, "app-2"))
        await bench.until(lambda: bench.status().app_id == "app-2")
        assert bench.status().least_slots == 0
        orders(bench, ORDER)
        await bench.until(lambda: bench.service.master.pool.state.reclaim is not None)
        assert (bench.wanted(), bench.status().reclaim) == (2, None)

    run(story)

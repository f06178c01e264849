"""A day of recorded load in a whole cluster: the executors of a stream follow it, with few changes, whatever fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from emberkeep.autoscale.model import AutoscaleSettings
from tests.campaign import seeds
from tests.simulation.elastic.test_reclaimed_slots import World, agent_dies, executors_die, nothing, takeover, work_of
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.elastic.load import Load
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, play
from tests.support.simulator.virtual_loop import seeded_random
from tests.unit.autoscale.recorded_day import DAY, DEPARTURES, rate_at

pytestmark = [pytest.mark.campaign, pytest.mark.long]

FASTER = 12  # times: the day, and all times of the autoscaler
MOST, SPEED, ROWS = 8, 1000.0, 200.0  # the busiest quarter of an hour needs seven executors at the target
UP_PAUSE, DOWN_PAUSE = 60.0 / FASTER, 600.0 / FASTER
MOST_CHANGES = len(DEPARTURES) // 2  # the load itself changes twice as often
LOAD = Load(
    rates=tuple(rate_at(index / len(DEPARTURES), ROWS) for index in range(len(DEPARTURES))),
    step=DAY / FASTER / len(DEPARTURES),
    speed=SPEED,
    fixed=0.5 / FASTER,
    interval=10.0 / FASTER,
    autoscale=AutoscaleSettings(
        minimum=1,
        maximum=MOST,
        target=0.7,
        batch_ms=round(10_000 / FASTER),
        catch_up_ms=round(300_000 / FASTER),
        up_pause_ms=round(UP_PAUSE * 1000),
        down_pause_ms=round(DOWN_PAUSE * 1000),
    ),
)
FAULTS = {fault.__name__: fault for fault in (nothing, takeover, executors_die, agent_dies)}


@dataclass
class Day:
    """What was seen: when the number that is wanted changed, and how many executors there were."""

    changes: list[tuple[float, int]] = field(default_factory=list)
    executor_seconds: float = 0.0
    longest_batch: float = 0.0

    def look(self, run: Run, world: World, seconds: float) -> None:
        work = work_of(run, world.borrower)
        if work is None or work.spark.query is None or work.spark.application is None:
            return
        wanted = work.service.master.pool.state.requirement
        if wanted is not None and (not self.changes or self.changes[-1][1] != wanted.count):
            self.changes.append((run.loop.time(), wanted.count))
        self.executor_seconds += len(work.spark.executors) * seconds
        self.longest_batch = max(self.longest_batch, work.spark.query.longest_batch)


async def tell(run: Run, fault: str, seed: int, day: Day) -> None:
    rng = seeded_random(f"day-{seed}", fault)
    world = World(run, run.cluster.submit("recorded", Script(seconds=None, executors=1, load=LOAD)))
    faults = sorted(rng.uniform(0.2, 0.9) * DAY / FASTER for _ in range(4))
    while run.loop.time() < DAY / FASTER:
        await asyncio.sleep(0.5)
        day.look(run, world, 0.5)
        if faults and run.loop.time() > faults[0]:
            del faults[0]
            await FAULTS[fault](world, rng)
    await run.end_everything()


@pytest.mark.parametrize("fault", FAULTS)
def test_executors_follow_a_recorded_day_with_few_changes(fault: str) -> None:
    for seed in seeds(1, theme=f"day {fault}", times=1):
        day = Day()
        plan = ClusterPlan(seed=f"day-{fault}-{seed}", task_managers=2, slots=MOST // 2, files=False)
        report = play(plan, lambda run, seed=seed, day=day: tell(run, fault, seed, day))  # type: ignore[misc]
        assert not report.violations, report.failure()
        sizes = [count for _, count in day.changes]
        assert max(sizes) > 4, "the busy hours need more than half of them"
        assert min(sizes) == 1, "the night needs one"
        assert len(sizes) <= MOST_CHANGES, sizes
        assert day.executor_seconds / (DAY / FASTER) < 0.75 * MOST, "it holds fewer than the peak needs"
        assert day.longest_batch < LOAD.autoscale.catch_up_ms / 1000, "and it catches up in time"
        for (before_at, before), (at, count) in pairwise(day.changes):
            pause = UP_PAUSE if count > before else DOWN_PAUSE
            assert at - before_at >= pause - 1.0, (day.changes, "seen twice a second")

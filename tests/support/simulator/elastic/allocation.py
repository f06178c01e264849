"""Spark's dynamic allocation in a scripted driver: the load changes, and idle executors are removed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from emberkeep.base.ids import ExecutorId
from emberkeep.jobmaster.ports import ExecutorDemand
from tests.support.simulator.machines import Machines, Process

IDLE_TIMEOUT = 4.0
LONGEST_LOAD = 5.0  # seconds after which the load changes
LONGEST_HAND_OVER = 6.0  # seconds that a decommissioned executor takes to end


class SimAllocation:
    """Draws how many executors are wanted, from ``least`` to ``most``, and removes idle ones beyond that.

    ``executors`` are those that have registered. One is removed in either of Spark's two ways: it is decommissioned
    and ends by itself, or it is killed, which nobody carries out but the JobMaster. ``has_waiting_task``: True while
    a task waits for an executor, so that Spark wants one.
    """

    def __init__(
        self,
        least: int,
        most: int,
        executors: Mapping[ExecutorId, Process],
        cordoned: Callable[[], frozenset[ExecutorId]],
        has_waiting_task: Callable[[], bool],
        machines: Machines,
        rng: random.Random,
    ) -> None:
        self.dismissed_at: dict[int, float] = {}  # when each executor was removed, by pid
        self._bounds = (least, most)
        self._executors = executors
        self._cordoned = cordoned
        self._has_waiting_task = has_waiting_task
        self._machines = machines
        self._rng = rng
        self._count = 1
        self._decommissioned: set[ExecutorId] = set()
        self._killed: set[ExecutorId] = set()

    def demand(self, app_id: str) -> ExecutorDemand:
        """Return what is wanted now. What has ended is named no more."""
        known = self._executors.keys()
        return ExecutorDemand(
            app_id=app_id,
            count=max(1, self._count) if self._has_waiting_task() else self._count,
            decommissioned=frozenset(self._decommissioned & known),
            killed=frozenset(self._killed & known),
        )

    def resize(self, count: int) -> None:
        """Want this many executors from now on, and remove those beyond."""
        self._count = count
        self._remove_idle()

    def has_dismissed(self, executor: Process) -> bool:
        return executor.pid in self.dismissed_at

    async def run(self) -> None:
        """Change the load until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.3, LONGEST_LOAD))
            self._count = self._rng.randint(*self._bounds)
            self._machines.history.count("load changed")
            await asyncio.sleep(IDLE_TIMEOUT * self._rng.random())
            self._remove_idle()

    def _remove_idle(self) -> None:
        working = [one for one in self._executors if one not in self._decommissioned | self._killed | self._cordoned()]
        for executor_id in working[self._count :]:
            executor = self._executors[executor_id]
            self.dismissed_at[executor.pid] = self._machines.loop.time()
            if self._rng.random() < 0.5:
                self._machines.history.count("executor killed by Spark")
                self._killed.add(executor_id)
            else:
                self._machines.history.count("executor decommissioned by Spark")
                self._decommissioned.add(executor_id)
                seconds, context = self._rng.uniform(1.0, LONGEST_HAND_OVER), executor.party.scope.context
                self._machines.loop.call_later(seconds, self._machines.exit, executor, 0, context=context)

"""A SparkDriver without Spark: the test sets what it reports, and reads the requests that it received."""

from __future__ import annotations

import asyncio

from emberkeep.base.ids import ExecutorId
from emberkeep.jobmaster.ports import BlocksLeft, ExecutorDemand, SparkQuestions, SparkView
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.records import ProgressRecord, new_records
from emberkeep.jobs.progress.work import NOTHING_DONE


class FakeSpark:
    """``executors`` are the registered ones. If ``hangs`` is True, it never replies, as a JVM that is out of memory."""

    def __init__(self) -> None:
        self.is_up = True
        self.hangs = False
        self.executors: set[ExecutorId] = set()
        self.silent: set[ExecutorId] = set()  # silent executors, reported only if asked about
        self.excluded: set[ExecutorId] = set()
        self.cordoned: frozenset[ExecutorId] = frozenset()
        self.left: dict[ExecutorId, BlocksLeft] = {}  # blocks on executors; unknown for others
        self.work = NOTHING_DONE
        self.flows: tuple[FlowProgress, ...] = ()
        self.reports: list[ProgressRecord] = []  # of streaming queries
        self.demanded: ExecutorDemand | None = None  # what dynamic allocation wants
        self.resizes: list[
            tuple[int, bool]
        ] = []  # numbers that autoscaling has asked for, and whether by decommissioning
        self.removed: list[tuple[ExecutorId, str]] = []
        self.failures: list[str] = []
        self.abandonments: list[str] = []

    async def view(self, asked: SparkQuestions) -> SparkView | None:
        await self._cross()
        self.cordoned = asked.cordoned & self.executors
        if not self.is_up:
            return None
        return SparkView(
            executors=frozenset(self.executors),
            silent=frozenset(self.silent & asked.doubted),
            takers=frozenset(self.executors) if asked.leaving else frozenset(),
            cordoned=self.cordoned,
            excluded=frozenset(self.excluded),
            blocks={key: self.left.get(key, BlocksLeft()) for key in asked.leaving | self.cordoned},
            queries=(),
            work=self.work,
            flows=self.flows,
            reports=tuple(new_records(self.reports, asked.reported)),
        )

    async def demand(self) -> ExecutorDemand | None:
        await self._cross()
        return self.demanded if self.is_up else None

    async def resize(self, count: int, *, decommissions: bool) -> None:
        await self._cross()
        self.resizes.append((count, decommissions))

    async def remove_executor(self, executor_id: ExecutorId, reason: str) -> None:
        self.removed.append((executor_id, reason))
        await self._cross()
        self.executors.discard(executor_id)

    async def fail(self, message: str) -> None:
        self.failures.append(message)

    async def abandon(self, message: str) -> None:
        self.abandonments.append(message)

    async def _cross(self) -> None:
        """Call into the JVM: wait forever if it hangs."""
        if self.hangs:
            await asyncio.get_running_loop().create_future()

"""What a JobMaster reads from Spark, and what it reports to Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError
from emberkeep.jobmaster.driver_trace import DriverTrace
from emberkeep.jobmaster.ports import SparkDriver, SparkQuestions, SparkView
from emberkeep.jobmaster.progress_keeper import ProgressKeeper
from emberkeep.slots.pool.events import RemoveExecutor
from emberkeep.slots.pool.machine import SlotPool

log = structlog.get_logger(__name__)


class SparkWatch:
    """Calls Spark with a timeout of ``patience`` seconds: a JVM that does not answer delays nothing else."""

    def __init__(
        self,
        spark: SparkDriver,
        pool: SlotPool,
        trace: DriverTrace,
        progress: ProgressKeeper,
        clock: Clock,
        *,
        patience: float,
    ) -> None:
        self._spark = spark
        self._pool = pool
        self._trace = trace
        self._progress = progress
        self._clock = clock
        self._patience = patience

    async def run(self, interval: float, viewed: Callable[[SparkView | None], Awaitable[None]]) -> None:
        """Give Spark's state to ``viewed`` every ``interval`` seconds, until cancelled."""
        while True:
            asked = self._asked()
            try:
                async with asyncio.timeout(self._patience):
                    await viewed(await self._spark.view(asked))
            except (EmberkeepError, TimeoutError) as error:
                log.debug("Spark does not answer", reason=str(error))
            # Cordon at once what the view has shown to need it: tasks fail there until then.
            is_due = self._pool.state.to_cordon() != asked.cordoned
            await asyncio.sleep(0.0 if is_due else interval)

    def _asked(self) -> SparkQuestions:
        pool = self._pool.state
        doubted = pool.doubted(self._clock.monotonic())
        return SparkQuestions(
            doubted=doubted,
            leaving=pool.leaving(),
            cordoned=pool.to_cordon(),
            milestones=self._trace.missing(),
            reported=self._progress.reported(),
        )

    async def remove_executor(self, lost: RemoveExecutor) -> None:
        """Report to Spark that an executor is lost, which Spark would notice only later by missing heartbeats."""
        try:
            async with asyncio.timeout(self._patience):
                await self._spark.remove_executor(lost.executor_id, lost.reason)
        except (EmberkeepError, TimeoutError) as error:
            log.warning("cannot report a lost executor to Spark", executor=lost.executor_id, reason=str(error))

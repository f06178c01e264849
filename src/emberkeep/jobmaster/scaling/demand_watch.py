"""Reads what Spark's dynamic allocation wants, several times a second while an application uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.jobmaster.ports import Application, ExecutorDemand, SparkDriver

log = structlog.get_logger(__name__)

# Spark itself decides every 0.1 s. A decommissioned executor lives for at least a second, so none ends unseen.
INTERVAL = 0.25


class DemandWatch:
    """Gives each demand to ``take``. Calls Spark with a timeout of ``patience`` seconds."""

    def __init__(
        self, spark: SparkDriver, take: Callable[[ExecutorDemand], Awaitable[None]], *, patience: float
    ) -> None:
        self._spark = spark
        self._take = take
        self._patience = patience
        self._is_dynamic = asyncio.Event()

    def follow(self, application: Application | None) -> None:
        """Watch this application if it uses dynamic allocation. None: there is no application."""
        if application is not None and application.dynamic is not None:
            self._is_dynamic.set()
        else:
            self._is_dynamic.clear()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._is_dynamic.wait()
            try:
                async with asyncio.timeout(self._patience):
                    demand = await self._spark.demand()
                if demand is not None:
                    await self._take(demand)
            except (EmberkeepError, TimeoutError) as error:
                log.debug("Spark does not answer", reason=str(error))
            await asyncio.sleep(INTERVAL)

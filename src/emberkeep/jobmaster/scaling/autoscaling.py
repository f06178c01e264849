"""Makes the number of an application's executors follow the load of its streaming queries."""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.autoscale.machine import Autoscaler
from emberkeep.autoscale.model import BatchFacts
from emberkeep.base.actors import Actor, ActorPart
from emberkeep.base.bounded import remember
from emberkeep.base.errors import EmberkeepError
from emberkeep.jobmaster.ports import Application, SparkDriver, SparkView
from emberkeep.jobs.progress.records import ProgressRecord, ReportKey, new_records

_RUNS_REMEMBERED = 10_000  # a script may start any number of queries

log = structlog.get_logger(__name__)


class Autoscaling(ActorPart):
    """Decides by Spark's views, and tells Spark how many executors to want. It is told again until it knows.

    ``reason``: why the number was changed last; "" before the first change. ``patience``: seconds for a call of Spark.
    """

    def __init__(self, owner: Actor, spark: SparkDriver, *, patience: float) -> None:
        super().__init__(owner)
        self._spark = spark
        self._patience = patience
        self._application: Application | None = None
        self._scaler: Autoscaler | None = None
        self._seen: dict[str, ReportKey] = {}  # newest report of each run of a query
        self._told: int | None = None  # the number that Spark knows
        self._is_telling = False
        self.reason = ""

    def follow(self, application: Application | None) -> None:
        """Scale this application, if its settings say so. None: there is no application."""
        dynamic = None if application is None else application.dynamic
        settings = None if dynamic is None else dynamic.autoscale
        self._application, self._scaler = application, None
        if application is not None and settings is not None:
            self._scaler = Autoscaler(settings, application.requirement.count)
        self._seen, self._told, self.reason = {}, None, ""

    def may_follow(self, count: int) -> bool:
        """Return False for a number that Spark wants only because it has not been told another one yet."""
        return self._scaler is None or (self._told is not None and count > 0)

    def see(self, view: SparkView, now_ms: int) -> None:
        """Decide by a new view."""
        if self._scaler is None or self._application is None:
            return
        new = new_records(view.reports, self._seen)
        for record in new:
            remember(self._seen, record.run_id, record.key, _RUNS_REMEMBERED)
        resized = self._scaler.look([_facts(record) for record in new], len(view.executors - view.cordoned), now_ms)
        if resized is not None:
            log.info("the number of executors changes", executors=resized.count, reason=resized.reason)
            self.reason = resized.reason
        if self._told != self._scaler.count and not self._is_telling:
            self._is_telling = True
            self._owner.start_effect("resize", self._tell(self._application, self._scaler.count), deadline=None)

    async def _tell(self, application: Application, count: int) -> None:
        known: int | None = None
        try:
            async with asyncio.timeout(self._patience):
                await self._spark.resize(count, decommissions=application.decommissions)
            known = count
        except (EmberkeepError, TimeoutError) as error:
            log.debug("Spark does not answer", reason=str(error))
        self.tell(lambda: self._told_to(application, known))

    def _told_to(self, application: Application, count: int | None) -> None:
        self._is_telling = False
        if application is self._application and count is not None:
            self._told = count


def _facts(record: ProgressRecord) -> BatchFacts:
    return BatchFacts(
        query=record.name or record.query_id[:8],
        began_ms=record.triggered_ms,
        duration_ms=record.duration_ms,
        rows=record.rows,
        interval_ms=record.interval_ms,
        backlog_ms=(record.backlog_seconds or 0.0) * 1000,
    )

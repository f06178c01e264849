"""Stores the usage of all task managers at a slow pace, so that the next leader continues the histories.

No decision depends on it, and none waits for it. What a killed leader has not written is missing in the plots.
"""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.errors import EmberkeepError
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.cluster import UsageView
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.usage.histories import KeptHistories, UsageHistories
from emberkeep.usage.history import EARLIER_STEPS, UsageHistory
from emberkeep.usage.ports import UsageStore

log = structlog.get_logger(__name__)

FIRST_PAUSE = 10.0  # seconds until a new leader has written what it took over
PAUSE = 60.0  # seconds between two writes: what a killed leader may lose


def usage_view(history: UsageHistory, step_ms: int, after_ms: int, report: TaskManagerReport | None) -> UsageView:
    """Return what a history has that begins after ``after_ms``. ``report``: the newest of its task manager, if any."""
    return UsageView(
        since_ms=history.since_ms,
        step_ms=step_ms,
        memory_total_mb=0 if report is None else report.memory_total_mb,
        disk_total_mb=0 if report is None else report.disk_total_mb,
        samples=history.samples(after_ms),
        earlier_step_ms=EARLIER_STEPS * step_ms,
        earlier=history.earlier(after_ms),
    )


class UsageKeeper(ActorPart):
    """Part of the ResourceManager. Nothing is written before the earlier histories have been read."""

    def __init__(self, owner: Actor, histories: UsageHistories, store: UsageStore, term: Term) -> None:
        super().__init__(owner)
        self._histories = histories
        self._store = store
        self._term = term
        self._has_earlier = False
        self._problem = ""

    async def run(self) -> None:
        """Read the earlier histories, then write all of them at intervals, until cancelled."""
        await self._try()
        await asyncio.sleep(FIRST_PAUSE)
        while True:
            await self._try(write=True)
            await asyncio.sleep(PAUSE)

    async def _try(self, *, write: bool = False) -> None:
        lineage, epoch = self._term.lineage, self._term.epoch
        try:
            if not self._has_earlier:
                await self._continue_from(await self._store.earlier(lineage, epoch))
            if write:
                await self._store.keep(lineage, epoch, await self._kept())
        except (EmberkeepError, OSError) as error:
            self._say(str(error))
        else:
            self._say("")

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.info("the usage of nodes is not stored now", reason=problem)
        self._problem = problem

    @asked
    def _continue_from(self, earlier: KeptHistories | None) -> None:
        if earlier is not None:
            self._histories.continue_from(earlier)
        self._has_earlier = True

    @asked
    def _kept(self) -> KeptHistories:
        return self._histories.kept()

"""Keeps the history of a job's streaming queries and its course, and writes them to its storage at a slow pace.

The driver owns the history, not the JobManager: so a leader's memory does not grow with a thousand records of each
query of each job, and a change of the leader changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError, Unavailable
from emberkeep.jobs.progress.course import Course, CourseLog
from emberkeep.jobs.progress.history import HistoryPage, ProgressLog, Selection
from emberkeep.jobs.progress.kept_progress import KeptProgress
from emberkeep.jobs.progress.records import ProgressRecord, ReportKey
from emberkeep.jobs.progress.trend import SAMPLE_MS, SAMPLES_KEPT, Trend, trend_of_rows
from emberkeep.jobs.progress.work import AttemptWork

log = structlog.get_logger(__name__)

PAUSE = 10.0  # seconds between two writes: what a killed driver may lose
COURSE_PAUSE = 60.0  # the same, while no query reports: so a short batch job writes nothing
LAST_WRITE_SECONDS = 3.0  # for the write when the script has ended


class ProgressStore(Protocol):
    """The progress that a job's attempts have written. Each attempt writes its own only."""

    async def earlier(self) -> KeptProgress:
        """Return what the newest earlier attempt has written, if it can be read. Raises Unavailable."""

    async def keep(self, kept: KeptProgress) -> None:
        """Write durably what this attempt knows, in place of everything before. Raises EmberkeepError."""


class ProgressKeeper(ActorPart):
    """The history and the course of one attempt, which continue those of the attempt before.

    ``store``: None keeps the history in memory only. Nothing is written before the earlier history has been read.
    """

    def __init__(self, owner: Actor, clock: Clock) -> None:
        super().__init__(owner)
        self.store: ProgressStore | None = None
        self._clock = clock
        self._log = ProgressLog()
        self._course = CourseLog()
        self._has_earlier = False
        self._changed = False
        self._written_at = clock.monotonic()
        self._written_course: Course | None = None
        self._writing = asyncio.Lock()
        self._trend: Trend | None = None
        self._trend_sample = 0

    def see(self, reports: Iterable[ProgressRecord]) -> None:
        """Add the reports that are new. Only for the owner's handlers."""
        self._changed |= self._log.add(reports, self._clock.now_ms())

    def reported(self) -> dict[str, ReportKey]:
        """Return the newest report of each run of a query. Only for the owner's loop."""
        return self._log.reported()

    def page(self, selection: Selection) -> HistoryPage:
        """Return the records that ``selection`` names. Only for the owner's handlers."""
        return self._log.page(selection)

    def trend(self) -> Trend | None:
        """Return the trend of all queries; None if none has reported. Only for the owner's handlers."""
        now_ms = self._clock.now_ms()
        if not self._log.is_empty and now_ms // SAMPLE_MS != self._trend_sample:
            self._trend_sample = now_ms // SAMPLE_MS
            recent = self._log.since(now_ms - (SAMPLES_KEPT + 1) * SAMPLE_MS)
            self._trend = trend_of_rows(recent, now_ms, began_ms=self._log.oldest_news_ms())
        return self._trend

    def course(self, work: AttemptWork, executors: int) -> Course | None:
        """Note what the attempt has done and how many executors it has, and return the job's course.

        Return None before the first executor or task. Only for the owner's handlers.
        """
        known = self._course.course()
        if known is None and not work.completed_tasks and not executors:
            return None
        self._course.note(work, executors, self._clock.now_ms())
        return self._course.course()

    async def run(self) -> None:
        """Read the earlier history, then write what is new every PAUSE seconds, until cancelled."""
        while self.store is not None:
            await self._write(self.store)
            await asyncio.sleep(PAUSE)

    async def write_last(self) -> None:
        """Write what is new, within LAST_WRITE_SECONDS. A failure is logged."""
        if self.store is None:
            return
        try:
            async with asyncio.timeout(LAST_WRITE_SECONDS):
                await self._write(self.store)
        except TimeoutError:
            log.warning("the newest progress of streaming queries is lost: its storage does not answer in time")

    async def _write(self, store: ProgressStore) -> None:
        async with self._writing:
            try:
                if not self._has_earlier:
                    await self._continue_from(await store.earlier())
                kept = await self._changes()
                if kept is not None:
                    await store.keep(kept)
            except EmberkeepError as error:
                self.tell(self._note_failure)
                say = log.info if isinstance(error, Unavailable) else log.warning
                say("the progress of streaming queries is not written now", reason=str(error))

    @asked
    def _continue_from(self, earlier: KeptProgress) -> None:
        self._log.continue_from(earlier.queries)
        if earlier.course is not None:
            self._course.continue_from(earlier.course)
        self._has_earlier = True

    @asked
    def _changes(self) -> KeptProgress | None:
        """Return everything if a record has come since the last call, or if it is time for the course; else None."""
        course, now = self._course.course(), self._clock.monotonic()
        is_time = course != self._written_course and now >= self._written_at + COURSE_PAUSE
        changed, self._changed = self._changed, False
        if not changed and not is_time:
            return None
        self._written_at, self._written_course = now, course
        return KeptProgress(queries=self._log.histories(), course=course)

    def _note_failure(self) -> None:
        self._changed = True

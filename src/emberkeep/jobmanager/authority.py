"""The leader's right to decide: a leader may decide only while its job store accepts its writes.

A leader that has lost contact with its store cannot know whether another JobManager leads, and its decisions would not
survive it. So it gives no order, declares nothing lost and refuses no process until a write has confirmed its epoch.
Its clock stops in the meantime, so the time left until each deadline does not change. Incoming reports are still noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.chronicle.ports import Recorder
from emberkeep.jobmanager.notes.leader_notes import store_back, store_in_doubt
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs.hearing import Hearing

FRESH = 1.0  # seconds for which a confirmation is valid, far fewer than pass before another JobManager may lead
PROBE_PAUSE = 0.5  # seconds between two tries to get a confirmation
REMINDER_PAUSE = 60.0  # seconds between two log lines while in doubt

log = structlog.get_logger(__name__)


class _Doubt(NamedTuple):
    since: float
    reason: str


class Authority:
    """Either confirmed or in doubt; the steady clock is held exactly while the authority is in doubt.

    ``confirm`` writes to the store and raises Conflict if another JobManager is the leader; it may take ``patience``
    seconds. After a doubt of ``forgiving`` seconds or more, the silence of task managers is measured only from its end
    on, because this leader may have missed their heartbeats. ``recorder`` gets the begin and the end of each doubt.
    """

    def __init__(
        self,
        clock: Clock,
        steady: SteadyClock,
        hearing: Hearing,
        confirm: Callable[[], Awaitable[None]],
        recorder: Recorder,
        *,
        patience: float,
        forgiving: float,
    ) -> None:
        self._clock = clock
        self._steady = steady
        self._hearing = hearing
        self._confirm = confirm
        self._recorder = recorder
        self._patience = patience
        self._forgiving = forgiving
        self._confirmed_at = float("-inf")
        self._paused = False
        self._doubt_now: _Doubt | None = None
        self._doubted = asyncio.Event()
        self._sure = asyncio.Event()
        self._sure.set()
        self._suspected = asyncio.Event()
        self._asking = asyncio.Lock()

    @property
    def in_doubt(self) -> bool:
        """True if nothing may be decided now."""
        return self._doubt_now is not None

    @property
    def problem(self) -> str:
        """Why nothing is decided now, and what to do about it; "" if not in doubt."""
        doubt = self._doubt_now
        if doubt is None:
            return ""
        seconds = self._clock.monotonic() - doubt.since
        return (
            f"nothing has been decided for {seconds:.0f} s, as the job store does not confirm that this JobManager "
            f"is the leader: {doubt.reason}; running jobs continue, and nothing new starts until the store (ZooKeeper, "
            "or the disk of jobs.sqlite) can be reached and written again"
        )

    async def remind(self) -> None:
        """Log at intervals that nothing is decided, until cancelled."""
        while True:
            await self._doubted.wait()
            await asyncio.sleep(REMINDER_PAUSE)
            if self.in_doubt:
                log.warning("still nothing is decided", reason=self.problem)

    def check(self) -> None:
        """Raise RetryLater while nothing may be decided."""
        if self.in_doubt:
            raise RetryLater(
                "this JobManager decides nothing: its job store does not confirm that it is the leader",
                hint="running jobs continue; try again",
            )

    def check_session(self) -> None:
        """Raise RetryLater while the session with the store is interrupted."""
        if self._paused:
            raise RetryLater(
                "this JobManager cannot confirm that it is the leader: ZooKeeper cannot be reached",
                hint="running jobs continue; try again",
            )

    def pause(self) -> None:
        """Doubt the leadership until ``resume``, because the session with the store is interrupted."""
        self._paused = True
        self._doubt("the session with the job store is interrupted")

    def resume(self) -> None:
        """End the doubt, because the store has just confirmed the leadership."""
        self._paused = False
        self._believe()

    def suspect(self) -> None:
        """Ask the store before anything else is decided, because a write has failed."""
        self._confirmed_at = float("-inf")
        self._suspected.set()

    async def run(self) -> None:
        """Ask the store after each suspicion until it has confirmed.

        Raises Conflict if another JobManager is the leader.
        """
        while True:
            await self._suspected.wait()
            if self._paused or not await self.confirmed(again=True):
                await asyncio.sleep(PROBE_PAUSE)
            else:
                self._suspected.clear()

    async def confirmed(self, *, again: bool = False) -> bool:
        """True if the store has confirmed the leadership within the last FRESH seconds, or confirms it now.

        Returns False without asking while paused, and while in doubt unless ``again``. Raises Conflict if another
        JobManager is the leader.
        """
        async with self._asking:
            if self._paused or (self.in_doubt and not again):
                return False
            if self._clock.monotonic() - self._confirmed_at < FRESH:
                return True
            return await self._ask()

    async def wait(self) -> None:
        """Return once the store has confirmed the leadership. Raises Conflict if another JobManager is the leader."""
        while not await self.confirmed():
            await self._sure.wait()

    async def _ask(self) -> bool:
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._patience):
                await self._confirm()
        except Conflict:
            raise
        except (EmberkeepError, TimeoutError) as error:
            self._doubt(str(error) or "the job store does not answer")
            self._suspected.set()
            return False
        if self._paused:  # the session was interrupted while the store answered
            return False
        self._confirmed_at = asked_at
        self._believe()
        return True

    def _doubt(self, reason: str) -> None:
        if self._doubt_now is None:
            log.warning(
                "nothing is decided until the job store confirms that this JobManager is the leader", reason=reason
            )
            self._doubt_now = _Doubt(self._clock.monotonic(), reason)
            self._doubted.set()
            self._steady.hold()
            self._sure.clear()
            self._recorder.note(store_in_doubt(reason))

    def _believe(self) -> None:
        if self._doubt_now is None:
            return
        lasted = self._clock.monotonic() - self._doubt_now.since
        log.warning("the job store has confirmed that this JobManager is the leader", seconds=round(lasted, 1))
        self._recorder.note(store_back(lasted))
        self._doubt_now = None
        self._doubted.clear()
        self._steady.release()
        if lasted >= self._forgiving:
            self._hearing.resumed(self._steady.now())
        self._sure.set()

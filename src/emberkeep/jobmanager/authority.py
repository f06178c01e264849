"""Whether this leader may decide anything: only while its job store takes what it writes.

A leader that has lost its store does not know whether another one leads, and nothing that it decides would outlive it.
So it gives no order, condemns nobody and refuses nobody until the store has confirmed its epoch by a write. Its clock
stands still meanwhile: every deadline is as far away afterwards as before. What it hears it takes note of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs.hearing import Hearing

FRESH = 1.0  # seconds for which a confirmation counts: much shorter than the time after which another one may lead
PROBE_PAUSE = 0.5  # seconds between two questions to a store that does not answer as it should
REMINDER_PAUSE = 60.0  # seconds between two lines in the log while nothing is decided

logger = logging.getLogger(__name__)


class Authority:
    """``confirm`` writes to the store and raises Conflict when another JobManager leads; it may take ``patience``
    seconds. After a doubt of ``forgiving`` seconds or more, silence counts anew: others may not have been heard."""

    def __init__(
        self,
        clock: Clock,
        steady: SteadyClock,
        hearing: Hearing,
        confirm: Callable[[], Awaitable[None]],
        *,
        patience: float,
        forgiving: float,
    ) -> None:
        self._clock = clock
        self._steady = steady
        self._hearing = hearing
        self._confirm = confirm
        self._patience = patience
        self._forgiving = forgiving
        self._confirmed_at = float("-inf")
        self._paused = False
        self._doubted_at: float | None = None
        self._reason = ""
        self._doubted = asyncio.Event()
        self._sure = asyncio.Event()
        self._sure.set()
        self._suspected = asyncio.Event()
        self._asking = asyncio.Lock()

    @property
    def in_doubt(self) -> bool:
        """Whether nothing may be decided at present."""
        return self._doubted_at is not None

    @property
    def problem(self) -> str:
        """Why nothing is decided at present, and what to do; "" otherwise."""
        if self._doubted_at is None:
            return ""
        seconds = self._clock.monotonic() - self._doubted_at
        return (
            f"nothing has been decided for {seconds:.0f} s, as the job store does not confirm that this JobManager "
            f"leads: {self._reason}; running jobs go on, and nothing new starts until the store (ZooKeeper, or the "
            "disk of jobs.sqlite) can be reached and written again"
        )

    async def remind(self) -> None:
        """Say in the log now and then that nothing is decided, until cancelled."""
        while True:
            await self._doubted.wait()
            await asyncio.sleep(REMINDER_PAUSE)
            if self.in_doubt:
                logger.warning("%s", self.problem)

    def check(self) -> None:
        """Raises RetryLater while nothing may be decided."""
        if self.in_doubt:
            raise RetryLater(
                "this JobManager decides nothing: it cannot confirm in its job store that it leads",
                hint="running jobs go on; try again",
            )

    def pause(self) -> None:
        """Whether this JobManager leads cannot be confirmed until ``resume``."""
        self._paused = True
        self._doubt("the session with the job store is interrupted")

    def resume(self) -> None:
        """The store has just confirmed that it leads."""
        self._paused = False
        self._believe()

    def suspect(self) -> None:
        """A write has failed: ask the store before anything else is decided."""
        self._confirmed_at = float("-inf")
        self._suspected.set()

    async def run(self) -> None:
        """Ask a store that is suspected, until it has confirmed. Raises Conflict: another JobManager leads."""
        while True:
            await self._suspected.wait()
            if self._paused or not await self.confirmed(again=True):
                await asyncio.sleep(PROBE_PAUSE)
            else:
                self._suspected.clear()

    async def confirmed(self, *, again: bool = False) -> bool:
        """Whether the store has confirmed a moment ago that this JobManager leads; asks it where that is not known,
        also when it has been in doubt since, if ``again``. Raises Conflict: another JobManager leads."""
        async with self._asking:
            if self._paused or (self.in_doubt and not again):
                return False
            if self._clock.monotonic() - self._confirmed_at < FRESH:
                return True
            return await self._ask()

    async def wait(self) -> None:
        """Return once the store has confirmed it. Raises Conflict: another JobManager leads."""
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
        if self._paused:  # meanwhile
            return False
        self._confirmed_at = asked_at
        self._believe()
        return True

    def _doubt(self, reason: str) -> None:
        if self._doubted_at is None:
            logger.warning("nothing is decided until the job store confirms that this JobManager leads: %s", reason)
            self._doubted_at, self._reason = self._clock.monotonic(), reason
            self._doubted.set()
            self._steady.hold()
            self._sure.clear()

    def _believe(self) -> None:
        if self._doubted_at is None:
            return
        lasted = self._clock.monotonic() - self._doubted_at
        logger.warning("the job store has confirmed that this JobManager leads, after %.1f s", lasted)
        self._doubted_at = None
        self._doubted.clear()
        self._steady.release()
        if lasted >= self._forgiving:
            self._hearing.resumed(self._steady.now())
        self._sure.set()

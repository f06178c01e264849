"""Sends an actor's state to another process: at once after a change, else at an interval, one message at a time.

Changes during a transmission are combined into the next message, so a slow receiver is never flooded. After a failure
the pauses grow, and changes do not shorten them: an absent receiver gets one try per pause.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

TRIES_PER_SILENCE = 3  # heartbeats that must get lost in a row before the sender counts as silent
FIRST_PAUSE = 0.1  # seconds
DOUBLINGS = 16  # 0.1 s doubled this many times exceeds any interval


def answer_timeout(rpc_timeout: float, silence_timeout: float) -> float:
    """Return the seconds to wait for the reply to a heartbeat.

    At most ``rpc_timeout``, and short enough for TRIES_PER_SILENCE heartbeats within ``silence_timeout`` seconds.
    """
    return min(rpc_timeout, silence_timeout / TRIES_PER_SILENCE)


class Beacon:
    """Sends the state of one actor. ``interval``, in seconds, may be changed while it runs."""

    def __init__(self, interval: float, rng: random.Random) -> None:
        self.interval = interval
        self._rng = rng
        self._due = asyncio.Event()
        self._elsewhere = asyncio.Event()

    def wake(self) -> None:
        """Request an early message, because the state has changed."""
        self._due.set()

    def restart(self) -> None:
        """Note that the receiver has changed: send to the new receiver without the pause after earlier failures."""
        self._elsewhere.set()
        self._due.set()

    async def run(self, send: Callable[[], Awaitable[bool]]) -> None:
        """Send until cancelled. ``send`` has a time limit of its own, and returns True if the receiver has replied."""
        failures = 0
        while True:
            self._due.clear()
            self._elsewhere.clear()
            if await send():
                failures = 0
                await self._until_due()
            else:
                failures += 1
                if await self._restarted(retry_pause(failures, self.interval, self._rng)):
                    failures = 0

    async def _restarted(self, seconds: float) -> bool:
        """Pause for ``seconds``. Return True if the receiver changed in the meantime, which ends the pause."""
        try:
            async with asyncio.timeout(seconds):
                await self._elsewhere.wait()
        except TimeoutError:
            return False
        return True

    async def _until_due(self) -> None:
        try:
            async with asyncio.timeout(self.interval):
                await self._due.wait()
        except TimeoutError:
            return


def retry_pause(failures: int, longest: float, rng: random.Random) -> float:
    """Return the seconds to wait after ``failures`` failures in a row.

    The pause doubles with each failure, up to ``longest``; half of it is random.
    """
    pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, DOUBLINGS), longest)
    return pause * (0.5 + 0.5 * rng.random())

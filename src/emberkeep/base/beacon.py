"""Sends the state of an actor to another process: at once when it changed, else at an interval, one message at a time.

Changes that come while a message is under way are gathered into the next one, so a slow receiver is never flooded.
After a failure the pauses grow, and changes do not shorten them: an absent receiver gets one try per pause.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

TRIES_PER_SILENCE = 3  # heartbeats that have to get lost one after the other before silence is noticed
FIRST_PAUSE = 0.1  # seconds
DOUBLINGS = 16  # 0.1 s doubled this often is more than any interval


def answer_timeout(rpc_timeout: float, silence_timeout: float) -> float:
    """Seconds to wait for the answer to a heartbeat: no longer than leaves time for the next ones."""
    return min(rpc_timeout, silence_timeout / TRIES_PER_SILENCE)


class Beacon:
    """``interval`` in seconds may be changed while it runs."""

    def __init__(self, interval: float, rng: random.Random) -> None:
        self.interval = interval
        self._rng = rng
        self._due = asyncio.Event()
        self._elsewhere = asyncio.Event()

    def wake(self) -> None:
        """There is something new to tell."""
        self._due.set()

    def restart(self) -> None:
        """The receiver is another one now: it is tried at once, whatever the pause after the last failure."""
        self._elsewhere.set()
        self._due.set()

    async def run(self, send: Callable[[], Awaitable[bool]]) -> None:
        """Send until cancelled. ``send`` returns whether the receiver has answered; it bounds itself."""
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
        """Pause; True: the receiver has changed meanwhile."""
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
    """Seconds to wait after that many failures in a row: doubling up to ``longest``, with half of it jitter."""
    pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, DOUBLINGS), longest)
    return pause * (0.5 + 0.5 * rng.random())

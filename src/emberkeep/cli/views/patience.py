"""Lets commands that wait for something go on while no JobManager answers, as during the change of a leader."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from emberkeep.base.errors import RetryLater
from emberkeep.cli.messages import say
from emberkeep.client.log_copy import ProblemClock

_PAUSE: Final = 0.5  # seconds
_UNREACHABLE_LIMIT: Final = 300.0

T = TypeVar("T")


class Patience:
    """Repeats requests without an answer, until there was none for 5 minutes. ``until``: not after this time.

    It is a time of ``time.monotonic``.
    """

    def __init__(self, until: float = math.inf) -> None:
        self._until = until
        self._silence = ProblemClock(_UNREACHABLE_LIMIT)

    async def of(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what ``ask`` returns. Raises what it raises, RetryLater only after the limit."""
        while True:
            try:
                found = await ask()
            except RetryLater as error:
                if not self._silence.is_running:
                    say(f"{error.message}; still waiting")
                if self._silence.is_over() or time.monotonic() >= self._until:
                    raise
            else:
                self._silence.reset()
                return found
            await asyncio.sleep(_PAUSE)


class Asking(Protocol):
    """Makes a request with ``ask``, once or again and again, and returns what ``ask`` returns."""

    async def __call__(self, ask: Callable[[], Awaitable[T]]) -> T: ...


def asking(*, patiently: bool) -> Asking:
    """Return what makes requests: with ``patiently`` a Patience, else a single try of each."""
    return Patience().of if patiently else _once


async def _once(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()

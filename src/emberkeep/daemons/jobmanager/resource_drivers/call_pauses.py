"""Pauses between calls that fail, whose repetition would keep a platform that is overloaded from recovering."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from emberkeep.base.errors import EmberkeepError

FIRST, LONGEST = 1.0, 16.0  # seconds

T = TypeVar("T")


@dataclass(frozen=True)
class _Failure:
    error: EmberkeepError
    pause: float
    until: float


class CallPauses:
    """Carries out calls of several kinds. A kind whose newest call has failed is in ``_failed``, with its pause.

    Each pause is twice as long as the one before, up to LONGEST. A kind that was not called for LONGEST after its pause
    begins anew.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failed: dict[str, _Failure] = {}

    async def call(self, kind: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return what ``work`` returns. While the pause of its kind lasts, raise its newest error again."""
        now = self._now()
        self._failed = {key: each for key, each in self._failed.items() if now < each.until + LONGEST}
        failure = self._failed.get(kind)
        if failure is not None and now < failure.until:
            raise failure.error.with_traceback(None)
        try:
            result = await work()
        except EmberkeepError as error:
            pause = FIRST if failure is None else min(2 * failure.pause, LONGEST)
            self._failed[kind] = _Failure(error, pause, self._now() + pause)
            raise
        self._failed.pop(kind, None)
        return result

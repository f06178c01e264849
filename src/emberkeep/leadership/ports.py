"""What leadership needs from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emberkeep.leadership.model import Event, LeaderAddress, LeaderNews


class Election(Protocol):
    """The queue of those who want to lead. What happens in it is told as events, on the loop."""

    async def run(self, tell: Callable[[Event], None]) -> None:
        """Take part until cancelled: tell of the session and of the latch."""

    def take(self, latch: int) -> None:
        """Stand in the queue, at its end."""

    def give_up(self, latch: int) -> None:
        """Leave it."""

    async def newer(self, epoch: int) -> LeaderAddress:
        """Return when somebody leads with a higher epoch."""


class LeaderLocator(Protocol):
    """Who leads, as far as is known; used by everybody who talks to the leader."""

    def leader(self) -> LeaderAddress | None:
        """The newest leader that was heard of. It may be gone: then no successor is known yet."""

    def news(self) -> LeaderNews:
        """All that is known, to be told to others."""

    def hear(self, news: LeaderNews) -> None:
        """Take what another process knows."""

    async def other_than(self, news: LeaderNews) -> LeaderNews:
        """Wait until something else than ``news`` is known; returns that."""

    async def changed(self, known: LeaderAddress | None) -> LeaderAddress:
        """Wait for a leader newer than ``known``, or return the one that there is already."""

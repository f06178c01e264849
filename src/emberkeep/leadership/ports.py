"""Ports: what leadership needs from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emberkeep.leadership.model import Event, LeaderAddress, LeaderNews


class Election(Protocol):
    """The queue of JobManagers that are ready to lead. It reports changes as events, on the event loop."""

    async def run(self, tell: Callable[[Event], None]) -> None:
        """Take part in the election until cancelled; pass events about the session and the latch to ``tell``."""

    def take(self, latch: int) -> None:
        """Join the queue at its end, with the latch of this number."""

    def give_up(self, latch: int) -> None:
        """Leave the queue."""

    async def newer(self, epoch: int) -> LeaderAddress:
        """Wait for a leader with a higher epoch than ``epoch`` and return its address."""


class LeaderLocator(Protocol):
    """This process's knowledge of the leader. Every component that calls the leader uses it."""

    def leader(self) -> LeaderAddress | None:
        """Return the newest known leader, whose process may have ended since; None if no leader is known yet."""

    def news(self) -> LeaderNews:
        """Return all that this process knows about the leader, to be sent to other processes."""

    def hear(self, news: LeaderNews) -> None:
        """Merge in what another process knows about the leader."""

    async def other_than(self, news: LeaderNews) -> LeaderNews:
        """Wait until this process knows something other than ``news``, and return that."""

    async def changed(self, known: LeaderAddress | None) -> LeaderAddress:
        """Return a leader newer than ``known``; wait for one if none is known yet."""

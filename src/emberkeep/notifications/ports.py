"""Where notifications go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from emberkeep.notifications.model import Notification


class Notifier(Protocol):
    """Takes notifications about jobs, for people and programs outside the cluster."""

    def notify(self, notification: Notification) -> None:
        """Take a notification. Returns at once and never raises; a notifier that is overloaded drops old ones."""


class SilentNotifier:
    """Drops all notifications."""

    def notify(self, notification: Notification) -> None:
        return None


class NoticeStore(Protocol):
    """Keeps the notifications that wait at a leader for the next leader of the same job store (``lineage``)."""

    async def earlier(self, lineage: str, epoch: int) -> list[Notification]:
        """Return what leaders before ``epoch`` have kept, oldest first. Raises EmberkeepError, OSError."""
        ...

    async def keep(self, lineage: str, epoch: int, waiting: Sequence[Notification]) -> None:
        """Replace what is kept. Raises EmberkeepError, OSError."""
        ...

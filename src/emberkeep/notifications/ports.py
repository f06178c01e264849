"""Where notifications go."""

from __future__ import annotations

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

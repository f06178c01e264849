"""The port to the blocklist: where the slot manager and the slot pool place no new slot and no driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from emberkeep.base.ids import TaskManagerId


class BlocklistView(Protocol):
    """An immutable blocklist that answers in constant time. A changed blocklist is another object."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if nothing new may be placed on this task manager."""

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if what runs there must move elsewhere, too."""

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        """Return, in words, the listed places where no task manager in ``present`` (id and node of each) runs."""


class NothingBlocked:
    """An empty blocklist, used until one arrives."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return False

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return False

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        return ()

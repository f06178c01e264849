"""The port to the blocklist: tells the slot manager and the slot pool where to place no new slots or drivers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from emberkeep.base.ids import TaskManagerId


class BlocklistView(Protocol):
    """An immutable blocklist that answers in constant time. Each change to the blocklist makes a new object."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if nothing new may be placed on this task manager."""

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if the work on this task manager must move elsewhere as well."""

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        """Describe the listed places that have none of the ``present`` task managers (id and node of each)."""


class NothingBlocked:
    """An empty blocklist, used until one arrives."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return False

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return False

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        return ()

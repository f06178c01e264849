"""Where no new slot and no driver is to go, as slot manager and slot pool see the blocklist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from emberkeep.base.ids import TaskManagerId


class BlockedPlaces(Protocol):
    """Tells in constant time what is blocked and never changes; another list comes as another object."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """Whether nothing new is to go there."""

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """Whether what runs there is to go as well."""

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        """The places that are listed and where none of these task managers, with their nodes, stands; in words."""


class NothingBlocked:
    """The blocklist of whoever was not told one."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return False

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return False

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        return ()

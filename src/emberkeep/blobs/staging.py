"""Staged clean-up (BLOB-10): what nobody references lives for one to two intervals, and can be picked up again.

An item is staged when it is found unreferenced, somewhere between two turns. The next turn makes it due, the one after
that gives it out for deletion: at least one whole interval has passed then, and at most two.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)


class Staging(Generic[ItemT]):
    """The *staging* and the *delete-now* list. Items keep the order in which they came."""

    def __init__(self) -> None:
        self._staged: dict[ItemT, None] = {}
        self._due: dict[ItemT, None] = {}

    def __len__(self) -> int:
        return len(self._staged) + len(self._due)

    def stage(self, item: ItemT) -> None:
        """``item`` is not referenced. What is on a list already keeps its place there."""
        if item not in self._due:
            self._staged.setdefault(item)

    def unstage(self, item: ItemT) -> None:
        """``item`` is referenced again, or gone; one that is on no list is fine."""
        self._staged.pop(item, None)
        self._due.pop(item, None)

    def turn(self) -> list[ItemT]:
        """One interval is over: returns what is to be deleted, which is on no list from now on."""
        due, self._due, self._staged = self._due, self._staged, {}
        return list(due)

    def is_staged(self, item: ItemT) -> bool:
        """Whether it is deleted by the turn after the next one."""
        return item in self._staged

    def is_due(self, item: ItemT) -> bool:
        """Whether it is deleted by the next turn."""
        return item in self._due

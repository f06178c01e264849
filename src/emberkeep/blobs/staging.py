"""Staged clean-up (BLOB-10): an unreferenced item is kept for one to two intervals and can be referenced again.

An item is staged when it is found unreferenced, at some time between two turns. The next turn makes it due; the turn
after that returns it for deletion. By then at least one whole interval has passed, and at most two.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)


class Staging(Generic[ItemT]):
    """The *staging* and the *delete-now* list. Items keep the order in which they were added."""

    def __init__(self) -> None:
        self._staged: dict[ItemT, None] = {}
        self._due: dict[ItemT, None] = {}

    def __len__(self) -> int:
        return len(self._staged) + len(self._due)

    def stage(self, item: ItemT) -> None:
        """Add an unreferenced item. An item that is already on a list keeps its place."""
        if item not in self._due:
            self._staged.setdefault(item)

    def unstage(self, item: ItemT) -> None:
        """Remove an item that is referenced again or gone. Does nothing if it is on no list."""
        self._staged.pop(item, None)
        self._due.pop(item, None)

    def turn(self) -> list[ItemT]:
        """End one interval. Return the items to delete, which are no longer tracked."""
        due, self._due, self._staged = self._due, self._staged, {}
        return list(due)

    def is_staged(self, item: ItemT) -> bool:
        """True if the turn after the next one deletes the item."""
        return item in self._staged

    def is_due(self, item: ItemT) -> bool:
        """True if the next turn deletes the item."""
        return item in self._due

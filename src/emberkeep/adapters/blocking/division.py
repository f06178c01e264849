"""Decide which key gets the next part of a shared resource, so that keys whose work hangs leave parts for others.

A key that has no part gets any free one. It gets another only up to its bound, and only while the number of free ones,
minus the reserve, is larger than what it has. So the share of each key shrinks with what others hold, and the reserve
goes only to keys that have nothing. Hence as many keys as there are parts in the reserve may hang, and a further key
still gets one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

KeyT = TypeVar("KeyT")

_RESERVED = 4  # a quarter of all parts


@dataclass(frozen=True)
class Division:
    """``total``: parts of the resource. ``per_key``: the most that one key may have."""

    total: int
    per_key: int

    @property
    def reserve(self) -> int:
        """Parts for keys that have none."""
        return self.total // _RESERVED

    def may_take(self, held: int, free: int) -> bool:
        """Return True if a key that holds ``held`` parts may take one of the ``free`` ones."""
        if held == 0:
            return free > 0
        return held < min(self.per_key, free - self.reserve)

    def next_key(self, waiting: Iterable[KeyT], held: Mapping[KeyT, int], free: int) -> KeyT | None:
        """Return which of the ``waiting`` keys takes a part: the first of those that hold least, None if none may."""
        admitted = (key for key in waiting if self.may_take(held.get(key, 0), free))
        return min(admitted, key=lambda key: held.get(key, 0), default=None)

"""Memories that are bounded by a number of entries."""

from __future__ import annotations

from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def remember(known: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    """Add an entry; beyond ``most`` entries, forget the oldest ones."""
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]

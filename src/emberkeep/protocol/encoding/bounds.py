"""Bounds a message of which a receiver keeps a copy, whatever its sender has put into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeVar, cast

import msgspec

from emberkeep.base.inert_text import cut_short

ValueT = TypeVar("ValueT")
_PLAIN = 8  # characters that a number counts as


@dataclass(frozen=True)
class Bounds:
    """What is kept of a message: in structs, tuples and dicts of any depth.

    ``text``: characters of a text, and of a key. ``items``: of a tuple or a dict; ``own`` has the numbers of those that
    may have more, by the names that lead to them, such as "work.stages". ``total``: characters of all of it together.
    """

    text: int
    items: int
    total: int
    own: Mapping[str, int] = field(default_factory=dict)

    def applied(self, value: ValueT) -> tuple[ValueT, dict[str, int]]:
        """Return ``value`` within these bounds, and how many items were dropped, by the names that lead to them.

        Long texts are cut, and the first items are kept. What is within the bounds is returned itself, not a copy.
        """
        taking = _Taking(self)
        return cast("ValueT", taking.take(value, "")), taking.dropped


class _Taking:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.total
        self.dropped: dict[str, int] = {}

    def take(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            kept = value if len(value) <= self._bounds.text else cut_short(str(value), self._bounds.text)
            self._left -= len(kept)
            return kept
        if isinstance(value, msgspec.Struct):
            return self._struct(value, path)
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if isinstance(value, dict):
            return self._dict(value, path)
        self._left -= _PLAIN
        return value

    def _struct(self, value: msgspec.Struct, path: str) -> Any:
        changes = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = self.take(before, f"{path}.{name}" if path else name)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(value, **changes) if changes else value

    def _tuple(self, value: tuple[Any, ...], path: str) -> Any:
        items: list[Any] = []
        for item in value[: self._most(path)]:
            if self._left <= 0:
                break
            items.append(self.take(item, path))
        self._note(path, len(value) - len(items))
        return value if len(items) == len(value) and all(map(is_, items, value)) else tuple(items)

    def _dict(self, value: dict[Any, Any], path: str) -> Any:
        entries: dict[Any, Any] = {}
        most = self._most(path)
        for key, item in value.items():
            if self._left <= 0 or len(entries) >= most:
                break
            if not isinstance(key, str) or len(key) <= self._bounds.text:  # a part of a key would be another key
                self.take(key, path)
                entries[key] = self.take(item, path)
        self._note(path, len(value) - len(entries))
        return value if len(entries) == len(value) and all(map(is_, entries.values(), value.values())) else entries

    def _most(self, path: str) -> int:
        return self._bounds.own.get(path, self._bounds.items)

    def _note(self, path: str, dropped: int) -> None:
        if dropped:
            self.dropped[path] = self.dropped.get(path, 0) + dropped

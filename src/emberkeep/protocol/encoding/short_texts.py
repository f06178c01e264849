"""Bounds the texts in a message of which a receiver keeps a copy, whatever its sender has put into it."""

from __future__ import annotations

from operator import is_
from typing import Any, TypeVar, cast

import msgspec

from emberkeep.base.inert_text import cut_short

ValueT = TypeVar("ValueT")


def with_short_texts(value: ValueT, most: int) -> ValueT:
    """Return ``value`` with no text longer than ``most`` characters, in structs, tuples and dicts of any depth.

    What has only short texts is returned itself, not a copy. Other containers and keys are left as they are.
    """
    return cast("ValueT", _shortened(value, most))


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= most else cut_short(str(value), most)
    if isinstance(value, msgspec.Struct):
        changes = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = _shortened(before, most)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        items = [_shortened(item, most) for item in value]
        return value if all(map(is_, items, value)) else tuple(items)
    if isinstance(value, dict):
        entries = {key: _shortened(item, most) for key, item in value.items()}
        return value if all(map(is_, entries.values(), value.values())) else entries
    return value

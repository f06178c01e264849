"""Records that a restore copies, with their locations moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from emberkeep.base.errors import Fatal, NewerFormat

T = TypeVar("T")


def moved_record(
    data: bytes, decode: Callable[[bytes], T], move: Callable[[T], T], encode: Callable[[T, bytes], bytes]
) -> bytes:
    """Return the record after ``move``; as it is if it is damaged, which the leader reports. Raises NewerFormat.

    ``encode`` gets the old record, too, whose fields of a newer release it keeps.
    """
    try:
        before = decode(data)
    except NewerFormat:
        raise
    except Fatal:
        return data
    now = move(before)
    return data if now == before else encode(now, data)

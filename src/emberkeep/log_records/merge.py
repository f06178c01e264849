"""Merges the records of several logs by time, step by step: each step gets one bounded part of each log.

A step returns only records that no later part can precede (or, backwards, follow). It says for each log where the next
step continues. So however long the logs are, a step needs the memory of one part of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from emberkeep.log_records.model import Record
from emberkeep.log_records.scan import Found

_UNTIMED: Final = -1  # the key of records before the first time of their log: they come first


class Part(msgspec.Struct, frozen=True):
    """What a search has found in a part of the log ``log``. ``is_last``: the log has no further part now."""

    log: str
    found: Found
    is_last: bool


class Merged(msgspec.Struct, frozen=True):
    """Records with the names of their logs, in the order of time, and the offset where each log continues."""

    records: tuple[tuple[str, Record], ...]
    positions: Mapping[str, int]


def merge(parts: Sequence[Part], limit: int, *, backwards: bool = False) -> Merged:
    """Return the first ``limit`` records of the parts, or with ``backwards`` the last ones, that are next by time.

    Records of one log stay in its order, even if their times are not. Records with equal times are in the order of
    ``parts``. At least one part is used up, or ``limit`` records are returned.
    """
    sign = -1 if backwards else 1
    keys = [_keys(part, sign) for part in parts]
    horizon = min((edge for part, (_, edge) in zip(parts, keys, strict=True) if not part.is_last), default=math.inf)
    known = [
        (sign * key, number, place)
        for number, (own, _) in enumerate(keys)
        for place, key in enumerate(own)
        if key <= horizon
    ]
    known.sort()
    chosen = known[-limit:] if backwards else known[:limit]
    counts = [0] * len(parts)
    for _, number, _ in chosen:
        counts[number] += 1
    records = tuple((parts[number].log, parts[number].found.records[place]) for _, number, place in chosen)
    positions = {part.log: _position(part.found, count, backwards) for part, count in zip(parts, counts, strict=True)}
    return Merged(records, positions)


def _keys(part: Part, sign: int) -> tuple[list[float], float]:
    """Return a key for each record of a part, and one for its edge; they never fall in the direction of the search."""
    highest, keys = -math.inf, []
    for record in part.found.records[::sign]:
        highest = max(highest, sign * _time(record.time))
        keys.append(highest)
    return keys[::sign], max(highest, sign * _time(part.found.edge_ms))


def _time(time: int | None) -> int:
    return _UNTIMED if time is None else time


def _position(found: Found, count: int, backwards: bool) -> int:
    if count == len(found.records):
        return found.start if backwards else found.end
    return found.records[-count - 1].end if backwards else found.records[count].offset

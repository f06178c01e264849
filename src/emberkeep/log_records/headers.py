"""The beginning of a log line that starts a record: its level and its time, in the forms that Spark jobs write.

- Log4j 2 as Spark configures it: ``26/01/31 18:00:00 WARN TaskSetManager: …``, with or without milliseconds.
- Python's ``logging``: ``WARNING:root:…``, ``2026-01-31 18:00:00,123 - name - ERROR - …`` and the like.
- JSON lines: Spark's structured logging, and Emberkeep's own logs.
- A level or a time of day with a level at the start of the line; Python's warnings (``app.py:3: UserWarning: …``).
- A traceback, or a Java exception that ends a thread, that no log message precedes.

All expressions are anchored or search a bounded number of bytes, and have no nested repetition: their work grows
linearly with the length of a line.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from emberkeep.log_records.model import Level

LocalTime = Callable[[int], int]
"""Turns a time of the machine that writes the log into Unix milliseconds. Its argument is counted as if it were UTC."""

_LEVEL_BYTES: Final = 160  # of a line with a time, within which its level must be
_TIME_BYTES: Final = 60  # after a level at the start of a line, within which its time must be

_NAMES: Final = rb"TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_TIME: Final = re.compile(
    rb"(?:([12]\d{3})[-/](0[1-9]|1[0-2])[-/](0[1-9]|[12]\d|3[01])|(\d\d)/(0[1-9]|1[0-2])/(0[1-9]|[12]\d|3[01]))"
    rb"[T ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:[.,](\d{1,9}))? ?(Z\b|UTC\b|[+-]\d\d:?\d\d\b)?"
)
_TIME_OF_DAY: Final = re.compile(rb"\[?(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?[\]\s]")
_LEVEL: Final = re.compile(rb"\b(?:" + _NAMES + rb")\b|\[(?:" + _NAMES.lower() + rb") {0,9}\]")
_LEVEL_FIRST: Final = re.compile(rb"\[?(" + _NAMES + rb")\]?(?::| {1,8}\S)")
_JSON_LEVEL: Final = re.compile(rb'"(?:level|levelname|severity)" ?: ?"([A-Za-z]{3,8})"')
_JSON_TIME: Final = re.compile(rb'"(?:timestamp|ts|time|@timestamp|asctime)" ?: ?"([^"\\]{8,40})"')
_PYTHON_WARNING: Final = re.compile(rb"[^\s:]{1,200}:\d{1,9}: [A-Z]\w{0,60}Warning: ")
_EXCEPTION: Final = re.compile(rb'Traceback \(most recent call last\):|Exception in thread "')
_ALIASES: Final = {"warning": Level.WARN, "critical": Level.FATAL}
_LEVELS: Final = {name.encode(): level for name, level in ({level.value: level for level in Level} | _ALIASES).items()}
_TIME_STARTS: Final = frozenset(b"0123456789")
_WORD_STARTS: Final = frozenset(b"TDIWECF")  # of levels, tracebacks and exceptions


class Header(msgspec.Struct, frozen=True, gc=False):
    """What the first line of a record says. ``weak``: the line may as well belong to a warning or error before it."""

    level: Level | None
    time: int | None = None
    weak: bool = False


_ERROR: Final = Header(Level.ERROR, weak=True)
_WARNING: Final = Header(Level.WARN)


def parse_header(line: bytes, local_time: LocalTime) -> Header | None:
    """Return what ``line`` says about the record that it starts; None if no record starts with this line."""
    if line[:1] == b"{":
        return _json_header(line, local_time)
    start = 1 if line[:1] == b"[" else 0
    first = line[start] if len(line) > start else 0
    if first in _TIME_STARTS:
        if found := _TIME.match(line, start):
            return Header(_level_after(line, found), _milliseconds(found, local_time))
        if found := _TIME_OF_DAY.match(line):
            level = _level_after(line, found)
            return None if level is None else Header(level)
    elif first in _WORD_STARTS:
        if found := _LEVEL_FIRST.match(line):
            at = _TIME.search(line, found.end(1), found.end(1) + _TIME_BYTES)
            return Header(_level(found.group(1)), _milliseconds(at, local_time) if at else None)
        if _EXCEPTION.match(line):
            return _ERROR
    return _WARNING if b"Warning: " in line and _PYTHON_WARNING.match(line) else None


def _level_after(line: bytes, found: re.Match[bytes]) -> Level | None:
    named = _LEVEL.search(line, found.end(), found.end() + _LEVEL_BYTES)
    return _level(named.group()) if named else None


def _json_header(line: bytes, local_time: LocalTime) -> Header | None:
    named = _JSON_LEVEL.search(line)
    level = _level(named.group(1)) if named else None
    found = _JSON_TIME.search(line)
    at = _TIME.match(found.group(1)) if found else None
    if level is None and at is None:
        return None
    return Header(level, _milliseconds(at, local_time) if at else None)


def _level(name: bytes) -> Level | None:
    return _LEVELS.get(name.strip(b"[] ").lower())


def _milliseconds(found: re.Match[bytes], local_time: LocalTime) -> int:
    fraction, zone = found.group(10, 11)
    at = _second(found.group(1, 2, 3, 4, 5, 6, 7, 8, 9)) + (int(fraction[:3].ljust(3, b"0")) if fraction else 0)
    if zone is None:
        return max(0, local_time(at))
    if zone in (b"Z", b"UTC"):
        return at
    ahead = int(zone[1:3]) * 60 + int(zone[-2:])
    return max(0, at - (ahead if zone[:1] == b"+" else -ahead) * 60_000)


@lru_cache(maxsize=64)
def _second(parts: tuple[bytes | None, ...]) -> int:
    """Return a date and a time of day as Unix milliseconds, as if they were UTC. Many records share a second."""
    year, month, day, short_year, short_month, short_day, hour, minute, second = parts
    date = (year, month, day) if year else (b"20" + (short_year or b""), short_month, short_day)
    clock = (hour, minute, second)
    numbers = [int(part or 0) for part in (*date, *clock)]
    return max(0, calendar.timegm(tuple(numbers)) * 1000)

"""Parsers of option values. Each raises ValueError with a sentence that states what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_DURATION_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)")
_SIZE_UNITS = {"b": 1, "": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3, "gb": 1024**3}


def duration(text: str) -> float:
    """Return the seconds in "500 ms", "10 s", "5 min", "1 h" or "2 d"; a number without a unit is seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _DURATION_UNITS:
        raise ValueError("expected a duration such as 500ms, 10s, 5min or 2h")
    return float(match.group(1)) * _DURATION_UNITS[match.group(2)]


def interval(minimum: float) -> Callable[[str], float]:
    """Return a parser of intervals: 0 (never), or at least ``minimum`` seconds."""

    def parse(text: str) -> float:
        seconds = duration(text)
        if 0 < seconds < minimum:
            raise ValueError(f"expected 0 or at least {minimum:g}s")
        return seconds

    return parse


def duration_of_at_least(minimum: float) -> Callable[[str], float]:
    """Return a parser of durations that are not shorter than ``minimum`` seconds."""

    def parse(text: str) -> float:
        seconds = duration(text)
        if seconds < minimum:
            raise ValueError(f"expected at least {minimum:g}s")
        return seconds

    return parse


def size(text: str) -> int:
    """Return the bytes in "512", "64k", "128m" or "2g" (powers of 1024)."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _SIZE_UNITS:
        raise ValueError("expected a size such as 64k, 512m or 2g")
    return int(match.group(1)) * _SIZE_UNITS[match.group(2)]


def boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.strip().lower() == "true"


def text(value: str) -> str:
    return value


def integer(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``minimum`` to ``maximum``."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}") from None
        if not minimum <= number <= maximum:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}")
        return number

    return parse


def decimal(minimum: float, maximum: float) -> Callable[[str], float]:
    """Return a parser of numbers from ``minimum`` to ``maximum``."""

    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"expected a number from {minimum} to {maximum}") from None
        if not minimum <= number <= maximum:
            raise ValueError(f"expected a number from {minimum} to {maximum}")
        return number

    return parse


def choice(*values: str) -> Callable[[str], str]:
    """Return a parser that accepts one of ``values``."""

    def parse(value: str) -> str:
        if value not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return value

    return parse

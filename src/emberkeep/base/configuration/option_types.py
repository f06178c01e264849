"""Parsers of option values. Each raises ValueError with a sentence that states what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

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
_Number = TypeVar("_Number", int, float)
_LONGEST = 36_500 * _DURATION_UNITS["d"]  # a sum of times in milliseconds must fit into 64 bits
_LARGEST = 2**63 - 1  # bytes; messages and records hold numbers of 64 bits
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_SIZE = re.compile(r"(\d+)\s*([a-z]*)")
_SIZE_UNITS = {"b": 1, "": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3, "gb": 1024**3}


class TooLong(ValueError):
    """A duration is longer than ``longest``."""

    def __init__(self, longest: str) -> None:
        super().__init__(f"expected at most {longest}")
        self.longest = longest


def duration(text: str) -> float:
    """Return the seconds in "500 ms", "10 s", "5 min", "1 h" or "2 d"; a number without a unit is seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _DURATION_UNITS:
        raise ValueError("expected a duration such as 500ms, 10s, 5min or 2h")
    seconds = float(match.group(1)) * _DURATION_UNITS[match.group(2)]
    if seconds > _LONGEST:
        raise TooLong(f"{_LONGEST // _DURATION_UNITS['d']:.0f}d")
    return seconds


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
    return _at_least(duration, minimum, f"{minimum:g}s")


def less_than(seconds: float, why: str) -> Callable[[float], str]:
    """Return a caution about durations shorter than ``seconds``."""
    return lambda value: f"is less than {seconds:g}s: {why}" if value < seconds else ""


def size(text: str) -> int:
    """Return the bytes in "512", "64k", "128m" or "2g" (powers of 1024)."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _SIZE_UNITS:
        raise ValueError("expected a size such as 64k, 512m or 2g")
    # Python refuses to read an integer of thousands of digits.
    if float(match.group(1)) * _SIZE_UNITS[match.group(2)] > _LARGEST:
        raise ValueError(f"expected at most {_LARGEST // 1024**3}g")
    return int(match.group(1)) * _SIZE_UNITS[match.group(2)]


def size_of_at_least(minimum: int) -> Callable[[str], int]:
    """Return a parser of sizes that are not smaller than ``minimum`` bytes."""
    return _at_least(size, minimum, f"{minimum // 1024}k")


def _at_least(parse: Callable[[str], _Number], minimum: _Number, shown: str) -> Callable[[str], _Number]:
    def checked(text: str) -> _Number:
        value = parse(text)
        if value < minimum:
            raise ValueError(f"expected at least {shown}")
        return value

    return checked


def size_or_none(minimum: int) -> Callable[[str], int]:
    """Return a parser of sizes: 0 (none), or at least ``minimum`` bytes."""

    def parse(text: str) -> int:
        value = size(text)
        if 0 < value < minimum:
            raise ValueError(f"expected 0 or at least {minimum // 1024}k")
        return value

    return parse


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


def named_values(value: str) -> dict[str, str]:
    """Return the values in "gpu=0,1;fpga=f0" by name."""
    return _named(value, _NAME)


def _named(value: str, names: re.Pattern[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(";"))):
        name, equals, text = (side.strip() for side in part.partition("="))
        if not equals or not text or not names.fullmatch(name):
            raise ValueError("expected name=value, several with semicolons between them")
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = text
    return found


def named_counts(value: str) -> dict[str, int]:
    """Return the whole numbers in "team-a=4;team-b=2" by name, each at least 1."""
    counts = {}
    for name, text in _named(value, _NAMESPACE).items():
        try:
            counts[name] = integer(1, 1_000_000)(text)
        except ValueError as error:
            raise ValueError(f"{error} for {name}") from None
    return counts


def named_lists(value: str) -> dict[str, tuple[str, ...]]:
    """Return the comma-separated values in "gpu=0,1;fpga=f0" by name."""
    lists = {name: tuple(part.strip() for part in text.split(",")) for name, text in named_values(value).items()}
    for name, values in lists.items():
        if not all(values) or len(set(values)) != len(values):
            raise ValueError(f"expected different values with commas between them for {name}")
    return lists


PRIORITIES = {"low": -100, "normal": 0, "high": 100}
_MOST_PRIORITY = 1000


def priority_text(number: int) -> str:
    """Return a priority in words, such as "high (100)"."""
    names = {value: name for name, value in PRIORITIES.items()}
    return f"{names[number]} ({number})" if number in names else str(number)


def priority(value: str) -> int:
    """Return the priority that a class or a number stands for."""
    if value in PRIORITIES:
        return PRIORITIES[value]
    try:
        return integer(-_MOST_PRIORITY, _MOST_PRIORITY)(value)
    except ValueError:
        classes = ", ".join(f"{name} ({number})" for name, number in PRIORITIES.items())
        raise ValueError(f"expected {classes}, or a whole number from {-_MOST_PRIORITY} to {_MOST_PRIORITY}") from None


def choice(*values: str) -> Callable[[str], str]:
    """Return a parser that accepts one of ``values``."""

    def parse(value: str) -> str:
        if value not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return value

    return parse


PORT = integer(0, 65535)
SOME_TIME = duration_of_at_least(0.001)  # where 0 would mean a loop without pauses, or a limit that is always over

"""Judges whether anything grows: the last quarter of a life against the first one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean, median

import msgspec

TOLERANCE = 0.05
# Differences that are no growth, whatever share they are: one more connection, a page of an allocator, a busy moment.
RESOLUTION: Mapping[str, float] = {
    "memory MiB": 4.0,
    "descriptors": 4.0,
    "threads": 3.0,
    "files": 25.0,
    "bytes MiB": 4.0,
    "nodes": 10.0,
    "milliseconds": 25.0,
}
AGES = (0.0, 20.0, 60.0, 180.0, 600.0, 1800.0)  # seconds at which an age of a process begins, for a fair comparison
FEWEST = 4  # samples of each quarter; fewer show nothing


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of a subject ``at`` seconds of its cluster's life. ``age``: seconds since its process has begun.

    ``values``: by name; the text behind the last colon is the unit, a key of RESOLUTION.
    """

    at: float
    subject: str
    age: float
    values: dict[str, float]


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one subject. ``by_age``: processes of the same age were compared."""

    subject: str
    value: str
    first: float
    last: float
    by_age: bool
    samples: int

    @property
    def change(self) -> float:
        """The growth as a share of the first quarter."""
        return (self.last - self.first) / self.first if self.first else 0.0

    @property
    def grows(self) -> bool:
        """True if the last quarter has more, by more than the tolerance and the resolution."""
        allowed = max(TOLERANCE * self.first, RESOLUTION[unit_of(self.value)])
        return self.last - self.first > allowed


def unit_of(value: str) -> str:
    return value.rpartition(": ")[2]


def drifts(samples: Sequence[Sample]) -> list[Drift]:
    """Return how each value has changed from the first quarter of the life to the last.

    A process needs more as it ages, until its caches and its allocator are full, and a leader that was killed is
    replaced by a young one. So processes are compared at the same age: within each age that both quarters have, then
    the mean of the ages. A process that lives longer than a quarter has no such age: its quarters are compared as they
    are.
    """
    if not samples:
        return []
    begin, end = samples[0].at, samples[-1].at
    quarter = (end - begin) / 4
    found = []
    series: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for sample in samples:
        for value, number in sample.values.items():
            series[sample.subject, value].append((sample.at, sample.age, number))
    for (subject, value), points in sorted(series.items()):
        first = [(age, number) for at, age, number in points if at <= begin + quarter]
        last = [(age, number) for at, age, number in points if at >= end - quarter]
        if len(first) < FEWEST or len(last) < FEWEST:
            continue
        by_age = _by_age(first, last)
        one, other = by_age or (median(number for _, number in first), median(number for _, number in last))
        found.append(
            Drift(
                subject=subject,
                value=value,
                first=one,
                last=other,
                by_age=by_age is not None,
                samples=len(first) + len(last),
            )
        )
    return found


def _by_age(first: Sequence[tuple[float, float]], last: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the means of both quarters over the ages that both have; None if there is none."""
    one, other = _ages(first), _ages(last)
    both = sorted(age for age in one.keys() & other.keys() if min(len(one[age]), len(other[age])) > 1)
    if not both:
        return None
    return mean(median(one[age]) for age in both), mean(median(other[age]) for age in both)


def _ages(points: Sequence[tuple[float, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for age, number in points:
        found[sum(age >= each for each in AGES)].append(number)
    return found

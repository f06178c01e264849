"""Tables and distributions of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from campaign.outages import OVERTAKEN

_LEAST_OF_P90 = 10


def distribution(seconds: Mapping[str, int]) -> dict[str, float]:
    """Return how often a fault was measured, how often no stream stood still, and the quantiles of the others."""
    values = {float(text): count for text, count in seconds.items()}
    overtaken = values.pop(OVERTAKEN, 0)
    unnoticed = values.pop(0.0, 0)
    ordered = sorted(value for value, count in values.items() for _ in range(count))
    return {
        "measured": unnoticed + len(ordered),
        "unnoticed": unnoticed,
        "overtaken": overtaken,
        **_quantiles(ordered),
    }


def durations(seconds: Mapping[str, int]) -> dict[str, float]:
    """Return how often something was measured, and the quantiles of all that was: 0 s is a time like others.

    There is no 90th percentile of fewer than ten: it would be the largest.
    """
    values = {float(text): count for text, count in seconds.items()}
    ordered = sorted(value for value, count in values.items() if value != OVERTAKEN for _ in range(count))
    found = {"measured": len(ordered), **_quantiles(ordered)}
    if len(ordered) < _LEAST_OF_P90:
        found.pop("p90", None)
    return found


def _quantiles(ordered: Sequence[float]) -> dict[str, float]:
    if not ordered:
        return {}
    return {
        "least": ordered[0],
        "median": _quantile(ordered, 0.5),
        "p90": _quantile(ordered, 0.9),
        "p99": _quantile(ordered, 0.99),
        "largest": ordered[-1],
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def by_name(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items())


def counts(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]

"""Tables and distributions of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from campaign.outages import OVERTAKEN


def distribution(seconds: Mapping[str, int]) -> dict[str, float]:
    """Return how often a fault was measured, how often no stream stood still, and the quantiles of the others."""
    values = {float(text): count for text, count in seconds.items()}
    overtaken = values.pop(OVERTAKEN, 0)
    unnoticed = values.pop(0.0, 0)
    ordered = sorted(value for value, count in values.items() for _ in range(count))
    found: dict[str, float] = {
        "measured": unnoticed + len(ordered),
        "unnoticed": unnoticed,
        "overtaken": overtaken,
    }
    if ordered:
        found |= {
            "least": ordered[0],
            "median": _quantile(ordered, 0.5),
            "p90": _quantile(ordered, 0.9),
            "p99": _quantile(ordered, 0.99),
            "largest": ordered[-1],
        }
    return found


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def by_name(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items())


def counts(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]

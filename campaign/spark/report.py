"""The section of a campaign's report about real PySpark."""

from __future__ import annotations

from typing import Any

import msgspec

from campaign.spark.figures import SparkFigures
from campaign.tables import by_name, counts, durations, table


def data(figures: SparkFigures) -> dict[str, Any]:
    """Return the section for programs."""
    return {
        "figures": msgspec.to_builtins(figures),
        "streams": {kind: durations(seconds) for kind, seconds in sorted(figures.streams.items())},
        "answers": {kind: durations(seconds) for kind, seconds in sorted(figures.answers.items())},
    }


def section(figures: SparkFigures, seed: int) -> list[str]:
    """Return the section for people."""
    lines = [
        "## Real PySpark",
        "",
        *table(
            ("what", "figure"),
            [
                ("histories", f"{figures.histories:,} of seed {seed}"),
                ("failed", f"{len(figures.failures)}"),
                ("faults", f"{sum(figures.faults.values()):,}, {figures.together:,} of them beside another one"),
                ("outputs that were compared row by row", f"{sum(figures.outputs.values()):,}"),
                ("rows in them", f"{sum(figures.rows.values()):,}"),
                ("outputs that differ", f"{figures.differences:,}"),
                ("input files", f"{figures.files:,}"),
                ("time", f"{figures.seconds / 60:.0f} min"),
                ("clusters", "; ".join(f"{n} with {what}" for what, n in by_name(figures.clusters))),
                ("code", ", ".join(figures.revisions)),
            ],
        ),
    ]
    if figures.failures:
        rows = [(str(each.number), each.violation.replace("|", "\\|"), each.kept) for each in figures.failures]
        lines += ["### Failed histories of PySpark", "", *table(("history", "violation", "record"), rows)]
    lines += ["### Faults of PySpark", "", *table(("fault", "applied"), counts(figures.faults))]
    if figures.outcomes:
        lines += ["Savepoints and suspends that failed beside another fault, so that the job continued:", ""]
        lines += table(("request", "failed"), counts(figures.outcomes))
    outputs = [(name, f"{n:,}", f"{figures.rows[name]:,}") for name, n in by_name(figures.outputs)]
    lines += ["### Outputs", "", *table(("query or batch job, and sink", "compared", "rows"), outputs)]
    return lines + _recovery(figures)


def _recovery(figures: SparkFigures) -> list[str]:
    rows = []
    for kind in sorted({*figures.streams, *figures.answers}):
        streams, answers = durations(figures.streams.get(kind, {})), durations(figures.answers.get(kind, {}))
        rows.append((kind, f"{streams['measured']:.0f}", *_times(streams), *_times(answers)))
    return [
        "### Recovery of PySpark",
        "",
        "Seconds from a fault, which may last itself. Streams: until each query of all jobs had committed a",
        "micro-batch that was planned after the fault, or run by a new driver. Cluster: until the leader answered,",
        "with all task managers. A new micro-batch begins once new rows are there, about each second. Faults beside",
        "others are not in this table.",
        "",
        *table(
            ("fault", "n", "streams: p50", "p90", "worst", "cluster: p50", "p90", "worst"),
            rows,
        ),
    ]


def _times(found: dict[str, float]) -> list[str]:
    return [f"{found[name]:.1f}" if name in found else "–" for name in ("median", "p90", "largest")]

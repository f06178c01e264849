"""The section of a campaign's report about real processes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from campaign.processes.figures import ProcessFigures
from campaign.processes.transfers.hits import ALL_TRANSFERS
from campaign.tables import by_name, counts, durations, table

_QUANTILES = ("least", "median", "p90", "p99", "largest")


def data(figures: ProcessFigures) -> dict[str, Any]:
    """Return the section for programs."""
    recoveries = {kind: durations(seconds) for kind, seconds in sorted(figures.recoveries.items())}
    return {"figures": msgspec.to_builtins(figures), "recovery": recoveries}


def section(figures: ProcessFigures, seed: int) -> list[str]:
    """Return the section for people."""
    faults = sum(figures.faults.values())
    done = Counter({kind: n for kind, n in figures.operations.items() if kind.endswith(": done")})
    unknown = sum(n for kind, n in figures.operations.items() if kind.endswith(": unknown"))
    minutes = figures.seconds_of_faults / 60
    lines = [
        "## Real processes",
        "",
        *table(
            ("what", "figure"),
            [
                ("histories", f"{figures.histories:,} of seed {seed}"),
                ("failed", f"{len(figures.failures)}"),
                ("faults", f"{faults:,}"),
                ("faults per minute under faults", f"{faults / minutes if minutes else 0.0:.0f}"),
                ("time", f"{minutes:.0f} min under faults, {figures.seconds / 60:.0f} min with recovery"),
                ("operations", f"{sum(done.values()):,} with a reply, {unknown:,} with an unknown outcome"),
                ("objects whose histories were checked", f"{figures.objects:,}, {figures.undecided:,} undecided"),
                ("jobs", ", ".join(f"{n:,} {status}" for status, n in by_name(figures.ends))),
                ("attempts that have begun", f"{figures.attempts:,}"),
                ("entries committed under a lease", f"{figures.entries:,}"),
                ("entries stored through state gateways", f"{figures.stored:,}"),
                ("requests for attempts that were over, answered by state gateways", f"{figures.late:,}"),
                ("files of jobs that drivers and executors have compared", f"{figures.files:,}"),
                ("faults that have hit a running BLOB transfer", on_transfers(figures) or "0"),
                (
                    "attempts that were stopped, and ran beside a newer one until ended",
                    f"{figures.overlaps:,}, for at most {figures.longest_overlap:.2f} s",
                ),
                ("code", ", ".join(figures.revisions)),
            ],
        ),
    ]
    if figures.failures:
        rows = [(str(each.number), each.violation.replace("|", "\\|"), each.kept) for each in figures.failures]
        lines += ["### Failed histories", "", *table(("history", "violation", "record"), rows)]
    lines += ["### Faults", "", *table(("fault", "applied"), counts(figures.faults))]
    lines += [*table(("operation", "with this outcome"), counts(figures.operations))]
    return lines + _recovery(figures)


def on_transfers(figures: ProcessFigures) -> str:
    """Say how many faults have hit a running BLOB transfer, and where; "" if none has, or they were not counted."""
    where = [f"{n:,} the {place}" for place, n in by_name(figures.on_transfers) if place != ALL_TRANSFERS]
    return f"{figures.on_transfers[ALL_TRANSFERS]:,}: {', '.join(where)}" if where else ""


def _recovery(figures: ProcessFigures) -> list[str]:
    rows = []
    for kind, seconds in sorted(figures.recoveries.items()):
        found = durations(seconds)
        times = [f"{found[name]:.2f}" if name in found else "–" for name in _QUANTILES]
        rows.append((kind, f"{found['measured']:.0f}", *times))
    return [
        "### Recovery of real processes",
        "",
        "Seconds from a fault, which may last itself, until the next work: for JobManagers and ZooKeeper the reply to",
        "a request that was sent after the fault, for drivers and state gateways the job's next deed in any attempt.",
        "Other faults continue at the same time.",
        "",
        *table(("fault", "measured", *_QUANTILES), rows),
    ]

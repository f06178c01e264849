"""The report of a campaign: Markdown for people, JSON for programs, plots. No figure in it is typed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from campaign import plots
from campaign.coverage import RULES, STATES, never, pairs
from campaign.crashes import report as crashes
from campaign.load import report as load_report
from campaign.processes import report as processes
from campaign.progress import Figures, Hunt, Progress
from campaign.soak import report as soak
from campaign.spark import report as spark
from campaign.swarm import KINDS
from campaign.tables import by_name, counts, distribution, table

PAIRS = (("rule", "fault", 0, 2), ("rule", "state", 0, 1), ("state", "fault", 1, 2))


def write(folder: Path, progress: Progress, command: str) -> Path:
    """Write the report of all runs so far. Return the path of its Markdown file. ``command``: that of the last run."""
    folder.mkdir(parents=True, exist_ok=True)
    data: dict[str, Any] = {"version": 1, "command": command}
    lines = ["# Report of a campaign", "", "Its last run:", "", "```console", f"$ {command}", "```", ""]
    hunts = [hunt for _, hunt in sorted(progress.hunts.items())]
    if progress.next:
        data["simulation"] = _simulation_data(progress)
        lines += _simulation(progress)
        _plots(folder, progress.figures)
    if progress.crashes.components:
        data["crashes"] = msgspec.to_builtins(progress.crashes)
        lines += crashes.section(progress.crashes, progress.seed)
    if progress.real.histories:
        data["processes"] = processes.data(progress.real)
        lines += processes.section(progress.real, progress.seed)
    if progress.load.histories:
        data["load"] = load_report.data(progress.load)
        lines += load_report.section(progress.load, progress.seed)
    if progress.spark.histories:
        data["spark"] = spark.data(progress.spark)
        lines += spark.section(progress.spark, progress.seed)
    if progress.soak.rounds:
        data["soak"] = soak.data(progress.soak)
        lines += soak.section(progress.soak, progress.seed)
    if hunts:
        data["planted"] = msgspec.to_builtins(hunts)
        lines += _planted(hunts)
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
    path = folder / "report.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _simulation_data(progress: Progress) -> dict[str, Any]:
    figures, reached = progress.figures, progress.figures.reached()
    return {
        "progress": msgspec.to_builtins(progress),
        "recovery": {kind: distribution(seconds) for kind, seconds in sorted(figures.outages.items())},
        "never": ["|".join(triple) for triple in never(reached, KINDS)],
    }


def _simulation(progress: Progress) -> list[str]:
    figures = progress.figures
    cpu = figures.cpu_seconds / max(1, figures.worlds)
    rate = figures.worlds / progress.seconds if progress.seconds else 0.0
    lines = [
        "## Simulation",
        "",
        *table(
            ("what", "figure"),
            [
                ("worlds", f"{figures.worlds:,} of seed {progress.seed}"),
                ("failed", f"{len(progress.failures)}, and {len(progress.mended)} that are mended"),
                ("faults", f"{sum(figures.faults.values()):,}"),
                ("virtual time", f"{figures.virtual_seconds / 3600:,.1f} hours"),
                ("worlds per second", f"{rate:.1f} in {progress.processes} processes"),
                ("processor time of a world", f"{cpu:.2f} s"),
                ("jobs", ", ".join(f"{n:,} {what.removeprefix('result ')}" for what, n in by_name(figures.results))),
                ("code", ", ".join(progress.revisions)),
            ],
        ),
    ]
    for title, failures in (("Failures", progress.failures), ("Found and mended", progress.mended)):
        rows = [(str(each.number), each.violation.replace("|", "\\|"), each.kept) for each in failures]
        lines += [f"### {title}", "", *table(("world", "violation", "kept as"), rows)] if rows else []
    lines += ["### Faults and worlds", "", *table(("fault", "applied"), counts(figures.faults))]
    lines += [*table(("kind of world", "played"), counts(figures.families))]
    lines += _recovery(figures)
    return lines + _coverage(figures)


def _recovery(figures: Figures) -> list[str]:
    rows = []
    for kind, seconds in sorted(figures.outages.items()):
        found = distribution(seconds)
        times = [f"{found[name]:.2f}" if name in found else "–" for name in ("median", "p90", "p99", "largest")]
        rows.append(
            (kind, f"{found['measured']:.0f}", f"{found['unnoticed']:.0f}", *times, f"{found['overtaken']:.0f}")
        )
    return [
        "### Recovery",
        "",
        "Virtual seconds from a fault until all streams that had worked work again; a fault that lasts is part of it.",
        "The simulation has half of the default timeouts. Unnoticed: no stream stood still. Overtaken: another fault",
        "came while a stream stood still, so that the fault was not measured.",
        "",
        "![Recovery times](recovery.svg)",
        "",
        *table(("fault", "measured", "unnoticed", "median", "p90", "p99", "largest", "overtaken"), rows),
    ]


def _coverage(figures: Figures) -> list[str]:
    reached = figures.reached()
    total = len(RULES) * len(STATES) * len(KINDS)
    lines = [
        "### Coverage",
        "",
        f"{len(reached):,} of {total:,} triples of rule, state of a job and fault were reached. Some cannot be: a rule",
        "about standby processes needs them. `report.json` lists the triples that were never reached.",
        "",
        "![Rules and faults](coverage.svg)",
        "",
    ]
    axes = (tuple(RULES), STATES, KINDS)
    for one, other, first, second in PAIRS:
        known = pairs(reached, first, second)
        missing: dict[str, list[str]] = {}
        for left in axes[first]:
            for right in axes[second]:
                if (left, right) not in known:
                    missing.setdefault(right, []).append(left)
        lines += [f"Never reached: {one} with {other}", ""]
        lines += table((other, one), [(right, ", ".join(left)) for right, left in missing.items()])
    return lines


def _planted(hunts: Sequence[Hunt]) -> list[str]:
    found = [hunt for hunt in hunts if hunt.found is not None]
    rows = [
        (
            hunt.name,
            hunt.domain,
            "**not found**" if hunt.found is None else hunt.by,
            f"{hunt.budget} {'s' if hunt.unit == 'tests' else hunt.unit}",
            hunt.violation.replace("|", "\\|"),
        )
        for hunt in hunts
    ]
    domains = ", ".join(f"{name} {count}" for name, count in by_name(Counter(hunt.domain for hunt in hunts)))
    return [
        "## Planted bugs",
        "",
        f"{len(found)} of {len(hunts)} were found within their budgets: worlds, histories of real processes, or "
        "processor time of tests. "
        f"Domains: {domains}.",
        "",
        *table(("bug", "domain", "found by", "budget", "violation"), rows),
    ]


def _plots(folder: Path, figures: Figures) -> None:
    found = {kind: distribution(seconds) for kind, seconds in sorted(figures.outages.items())}
    rows = {
        kind: (each["least"], each["median"], each["p90"], each["largest"])
        for kind, each in found.items()
        if "median" in each
    }
    title = "Virtual seconds until all streams work again: least to largest, bar from median to 90th percentile"
    (folder / "recovery.svg").write_text(plots.spans(title, rows, "s"), encoding="utf-8")
    counts = Counter((kind, rule) for rule, _, kind in figures.reached())
    title = "States in which a rule was applied after a fault"
    (folder / "coverage.svg").write_text(plots.grid(title, KINDS, RULES, counts), encoding="utf-8")

"""The section of a campaign's report about crash points."""

from __future__ import annotations

from campaign.crashes.figures import CrashFigures
from campaign.tables import table
from tests.support.crashes.component import KINDS


def section(figures: CrashFigures, seed: int) -> list[str]:
    """Return the section for people."""
    points = {kind: sum(each.points.get(kind, 0) for each in figures.components.values()) for kind in KINDS}
    at_once = sum(pair.at_once for pair in figures.pairs.values())
    in_turn = sum(pair.in_turn for pair in figures.pairs.values())
    lines = [
        "## Crash points",
        "",
        *table(
            ("what", "figure"),
            [
                ("components", f"{len(figures.components)}"),
                ("crash points of components", f"{sum(points.values()):,}"),
                ("crashes of two machines at once", f"{at_once:,}"),
                ("crashes of one machine, then of another", f"{in_turn:,}, drawn from the seed {seed}"),
                ("failed", f"{len(figures.failures)}"),
                ("time", f"{figures.seconds / 60:.1f} min"),
                ("code", ", ".join(figures.revisions)),
            ],
        ),
        "### Crash points of components",
        "",
        "One for each durable step and kind. Different disks: what a restart found, each checked once.",
        "",
        *table(
            ("process", "component", *(kind.lower() for kind in KINDS), "different disks", "failed"),
            [
                (
                    each.process,
                    name,
                    *(str(each.points.get(kind, "–")) for kind in KINDS),
                    f"{each.disks}",
                    f"{len(each.failures)}",
                )
                for name, each in figures.components.items()
            ],
        ),
        "### Crash points of pairs",
        "",
        *table(
            ("pair", "durable steps", "at once", "in turn", "failed"),
            [
                (
                    name,
                    f"{pair.steps[0]} and {pair.steps[1]}",
                    f"{pair.at_once:,} of {pair.at_once_of:,}",
                    f"{pair.in_turn:,} of {pair.in_turn_of:,}",
                    f"{len(pair.failures)}",
                )
                for name, pair in figures.pairs.items()
            ],
        ),
    ]
    if figures.failures:
        lines += [
            "### Failed crash points",
            "",
            *(f"- {failure.replace('|', '/')}" for failure in figures.failures),
            "",
        ]
    return lines

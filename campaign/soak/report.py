"""The section of a campaign's report about the soak."""

from __future__ import annotations

from typing import Any

import msgspec

from campaign.soak.drift import TOLERANCE, drifts
from campaign.soak.figures import SoakFigures
from campaign.tables import counts, table


def data(figures: SoakFigures) -> dict[str, Any]:
    """Return the section for programs."""
    found = drifts(figures.samples)
    return {
        "figures": msgspec.to_builtins(figures),
        "drifts": [{**msgspec.to_builtins(each), "change": each.change, "grows": each.grows} for each in found],
    }


def section(figures: SoakFigures, seed: int) -> list[str]:
    """Return the section for people."""
    found = drifts(figures.samples)
    lines = [
        "## Soak",
        "",
        *table(
            ("what", "figure"),
            [
                ("life", f"{figures.seconds / 3600:.2f} hours of seed {seed}, in {figures.runs:,} runs"),
                ("rounds", f"{figures.rounds:,}"),
                ("samples", f"{len(figures.samples):,}"),
                ("values that grow", f"{sum(each.grows for each in found)} of {len(found)}"),
                ("problems", f"{len(figures.problems)}"),
                ("code", ", ".join(figures.revisions)),
            ],
        ),
        *table(("deed", "done"), counts(figures.deeds)),
    ]
    if figures.problems:
        problems = [(problem[:400].replace("|", "\\|").replace("\n", " "),) for problem in figures.problems]
        lines += table(("problem",), problems)
    rows = [
        (
            each.subject,
            each.value,
            f"{each.first:,.1f}",
            f"{each.last:,.1f}",
            f"{each.change:+.1%}",
            "same ages" if each.by_age else "as they are",
            "**grows**" if each.grows else "",
        )
        for each in found
    ]
    return [
        *lines,
        "### The last quarter against the first",
        "",
        f"A value grows if its last quarter has over {TOLERANCE:.0%} more than its first, and more than measuring can",
        "tell apart. Processes are compared at the same ages where both quarters have them.",
        "",
        *table(("of", "value", "first quarter", "last quarter", "change", "compared", ""), rows),
    ]

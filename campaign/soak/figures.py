"""What a soak has shown so far. It continues in the next run."""

from __future__ import annotations

from collections import Counter

import msgspec

from campaign.processes.figures import add_counts
from campaign.soak.drift import Sample


class SoakFigures(msgspec.Struct):
    """``rounds``: that were lived, of ``seconds`` in all, in ``runs``: each starts the cluster again on its data.

    ``deeds``: by kind. ``problems``: what did not end as it must.
    """

    rounds: int = 0
    runs: int = 0
    seconds: float = 0.0
    deeds: dict[str, int] = {}
    samples: list[Sample] = []
    problems: list[str] = []
    revisions: list[str] = []

    def took(self, counts: Counter[str], samples: list[Sample], problems: list[str], seconds: float) -> None:
        """Add a round."""
        self.rounds += 1
        self.seconds += seconds
        add_counts(self.deeds, counts)
        self.samples += samples
        self.problems += problems

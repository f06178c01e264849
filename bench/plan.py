"""How much is measured."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """``repetitions``: samples per figure. ``quick``: smaller sizes too, to see that everything works."""

    repetitions: int
    quick: bool

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)

"""How much is measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """``repetitions``: samples per figure. ``quick``: smaller sizes too, to see that everything works."""

    repetitions: int
    quick: bool

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def turns(self, what: str) -> Iterator[int]:
        """The repetitions one by one, from 0; says which of them is measured."""
        for turn in range(self.repetitions):
            say(f"{what}: {turn + 1} of {self.repetitions}")
            yield turn


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)

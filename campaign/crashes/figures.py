"""What the level ``crashes`` has shown so far."""

from __future__ import annotations

import msgspec

FAILURES_AT_MOST = 20  # kept, of a component or pair


class ComponentFigures(msgspec.Struct, frozen=True):
    """``points``: tried, by kind. ``disks``: how many different disks a restart found."""

    process: str
    points: dict[str, int]
    disks: int
    failures: tuple[str, ...]


class PairFigures(msgspec.Struct):
    """Crashes of two machines ``at_once``, and of one after the other (``in_turn``): tried, and of how many."""

    steps: tuple[int, int] = (0, 0)
    at_once: int = 0
    at_once_of: int = 0
    in_turn: int = 0
    in_turn_of: int = 0
    failures: list[str] = []


class CrashFigures(msgspec.Struct):
    """By component, and by pair. The components are tried anew in each run, the pairs continue."""

    components: dict[str, ComponentFigures] = {}
    pairs: dict[str, PairFigures] = {}
    seconds: float = 0.0
    revisions: list[str] = []

    @property
    def failures(self) -> list[str]:
        """All that has failed."""
        found = [failure for each in self.components.values() for failure in each.failures]
        return found + [failure for each in self.pairs.values() for failure in each.failures]

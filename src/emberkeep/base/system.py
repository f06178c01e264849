"""The outside as one value, so that wiring passes time, chance and ids together and a simulation replaces all three."""

from __future__ import annotations

import random
from dataclasses import dataclass

from emberkeep.base.clock import Clock, SystemClock
from emberkeep.base.ids import IdSource, SystemIds


@dataclass(frozen=True)
class System:
    """Clock, randomness (for jitter, never for secrets) and ids."""

    clock: Clock
    rng: random.Random
    ids: IdSource


def real_system() -> System:
    """The machine's own."""
    return System(SystemClock(), random.Random(), SystemIds())

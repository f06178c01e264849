"""Time, randomness and ids as one value, so that a simulation replaces all three at once."""

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
    """Return the machine's own clock, randomness and ids."""
    return System(SystemClock(), random.Random(), SystemIds())

"""Ids that a seed decides."""

from __future__ import annotations

import random


class SeededIds:
    """Implements IdSource."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def hex32(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

"""What happens in a round of compressed life: deeds with their times, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

ROUND_SECONDS = 60.0
JOBS = (3, 7)  # that come in a round; each runs for some seconds
EVERY: Mapping[str, int] = {  # how many rounds have one of these, at least
    "kill leader": 3,
    "evacuate a node": 2,
    "savepoint": 2,
    "upgrade": 5,
}
_LATEST = 0.9  # share of a round in which deeds begin


class Deed(msgspec.Struct, frozen=True, order=True):
    """Something that users or machines do, ``at`` seconds after the round's beginning. ``number`` seeds its choices."""

    at: float
    kind: str
    number: int


def draw_round(seed: int, number: int) -> tuple[Deed, ...]:
    """Return the deeds of a round, in order."""
    chance = random.Random(f"{seed}/soak/{number}")
    kinds = ["job"] * chance.randint(*JOBS)
    kinds += ["cancelled job"] * chance.randint(0, 2)
    # Each in turn, so that every quarter of a life has as many of each.
    kinds += [kind for offset, (kind, every) in enumerate(EVERY.items()) if (number + offset) % every == 0]
    times = [round(chance.uniform(0.0, _LATEST * ROUND_SECONDS), 2) for _ in kinds]
    return tuple(sorted(Deed(at, kind, chance.getrandbits(32)) for at, kind in zip(times, kinds, strict=True)))

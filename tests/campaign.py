"""How much a test tries: usually little and the same each time; in a campaign much, and something new each time.

`make test-long` runs a campaign: each property and state machine with four times the examples, each simulated world
with at least twice the seeds. Its seed is printed; `make test-long CAMPAIGN=<seed>` runs the same campaign again. What
hypothesis finds is kept in `.hypothesis/examples`, and a simulated seed that fails in `.hypothesis/simulation`.
The next campaign tries both first.

A campaign has a time budget (``MINUTES=``, 0 for none): after it, no further test begins, and the summary says how many
did not. Each campaign plays the integration tests in an order of its own, so that over a few campaigns all have begun.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path

TIMES = 4  # as many examples as usual
FOUND = Path(__file__).parent.parent / ".hypothesis"  # what campaigns have found
_FOUND_AT_MOST = 200
_NO_CHANCE = 20  # what is expected so often is missed by chance once in exp(20) campaigns

CAMPAIGN = int(os.environ["EMBERKEEP_CAMPAIGN"]) if os.environ.get("EMBERKEEP_CAMPAIGN") else None
NOT_BEGUN = "not begun: the campaign's time is over"
_UNTIL = "EMBERKEEP_CAMPAIGN_UNTIL"  # in seconds since 1970; from the first process of a campaign for its workers


def begin_campaign() -> None:
    """Set when no further test begins. The processes that this one starts keep to it."""
    minutes = float(os.environ.get("EMBERKEEP_CAMPAIGN_MINUTES") or 0)
    if CAMPAIGN is not None and minutes:
        os.environ.setdefault(_UNTIL, str(time.time() + 60 * minutes))


def is_over() -> bool:
    """True if the campaign has used its time."""
    return _UNTIL in os.environ and time.time() > float(os.environ[_UNTIL])


def place(name: str) -> float:
    """Return where this campaign plays a file of tests: the same for the same seed."""
    return random.Random(f"{CAMPAIGN} {name}").random()


def examples(usual: int) -> int:
    """How many examples hypothesis tries."""
    return usual if CAMPAIGN is None else TIMES * usual


def seeds(usual: int, *, theme: str = "", times: int = 2) -> list[int]:
    """Numbers of simulated worlds. A campaign: those found before, then ``times`` as many as usual, all fresh."""
    if CAMPAIGN is None:
        return list(range(1, usual + 1))
    first = 1_000 + CAMPAIGN % 1_000_000 * 10_000
    return [*_found(theme), *range(first, first + times * usual)]


def seldom(met: Mapping[str, int], at_least: Mapping[str, int]) -> dict[str, int]:
    """Return what a batch of worlds has met less often than it must; a batch shows nothing about what it has not met.

    The usual seeds are always the same, so that their counts never change. The seeds of a campaign are new each time:
    how often they meet something rare is chance. Of a campaign this returns only what it has not met at all although
    ``at_least`` asks for so many that chance cannot explain it.
    """
    if CAMPAIGN is None:
        return {what: met.get(what, 0) for what, least in at_least.items() if met.get(what, 0) < least}
    return {what: 0 for what, least in at_least.items() if least >= _NO_CHANCE and not met.get(what, 0)}


def keep(seed: int, *, theme: str = "") -> None:
    """Keep a seed that has failed in a campaign, so that the next one tries it first."""
    if CAMPAIGN is not None and seed not in _found(theme):
        (FOUND / "simulation").mkdir(parents=True, exist_ok=True)
        with _file(theme).open("a", encoding="ascii") as file:
            file.write(f"{seed}\n")


def _found(theme: str) -> list[int]:
    try:
        lines = _file(theme).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []
    return [int(line) for line in lines[-_FOUND_AT_MOST:]]


def _file(theme: str) -> Path:
    return FOUND / "simulation" / (theme or "any")

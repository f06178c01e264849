"""How much a test tries: usually little and the same each time; in a campaign much, and something new each time.

`make test-long` runs a campaign: each property and state machine with eight times the examples, each simulated world
with at least twice the seeds. Its seed is printed; `make test-long CAMPAIGN=<seed>` runs the same campaign again.
What hypothesis finds is kept in `.hypothesis/examples`, and a simulated seed that fails in `.hypothesis/simulation`.
The next campaign tries both first.

A campaign has a time budget (``MINUTES=``, 0 for none): after it, no further test begins, and the summary says how many
did not. Integration tests that earlier campaigns in this checkout have not begun come first, then those that began
longest ago, otherwise in an order of this campaign's own (``ORDER=`` sets it): over a few campaigns all have begun.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
TIMES = 8  # as many examples as usual
FOUND = Path(__file__).parent.parent / ".hypothesis"  # what campaigns have found
_FOUND_AT_MOST = 200
_NO_CHANCE = 20  # what is expected so often is missed by chance once in exp(20) campaigns

CAMPAIGN = int(os.environ["EMBERKEEP_CAMPAIGN"]) if os.environ.get("EMBERKEEP_CAMPAIGN") else None
ORDER = os.environ.get("EMBERKEEP_CAMPAIGN_ORDER") or str(CAMPAIGN)
NOT_BEGUN = "not begun: the campaign's time is over"
# In seconds since 1970; from the first process of a campaign for its workers.
_BEGAN, _UNTIL = "EMBERKEEP_CAMPAIGN_BEGAN", "EMBERKEEP_CAMPAIGN_UNTIL"


def begin_campaign() -> None:
    """Set when it began, and when no further test begins. The processes that this one starts keep to it."""
    if CAMPAIGN is None:
        return
    began = float(os.environ.setdefault(_BEGAN, str(time.time())))
    minutes = float(os.environ.get("EMBERKEEP_CAMPAIGN_MINUTES") or 0)
    if minutes:
        os.environ.setdefault(_UNTIL, str(began + 60 * minutes))


def is_over() -> bool:
    """True if the campaign has used its time."""
    return _UNTIL in os.environ and time.time() > float(os.environ[_UNTIL])


def begin_file(name: str) -> None:
    """Note that a test of this file begins. ``name``: its path, without suffix."""
    note, before = _notes(name)
    note.parent.mkdir(parents=True, exist_ok=True)
    if note.exists() and not _is_of_this_campaign(note):
        note.replace(before)
    note.touch()


def place(name: str) -> tuple[float, float]:
    """Return where this campaign plays a file of tests: when an earlier one began it, and a number drawn by ``ORDER``.

    All processes of a campaign come to the same order, also one that replaces another in its midst.
    """
    earlier = (note.stat().st_mtime for note in _notes(name) if note.exists() and not _is_of_this_campaign(note))
    return next(earlier, 0.0), random.Random(f"{ORDER} {name}").random()


def _notes(name: str) -> tuple[Path, Path]:
    """Return the files whose times tell when a file of tests last began, and when before that."""
    note = FOUND / "begun" / name
    return note, note.with_name(f"{note.name}.before")


def _is_of_this_campaign(note: Path) -> bool:
    return note.stat().st_mtime >= float(os.environ[_BEGAN])


def examples(usual: int) -> int:
    """How many examples hypothesis tries."""
    return usual if CAMPAIGN is None else TIMES * usual


def drawn(cases: Sequence[T], at_most: int) -> list[T]:
    """Return all cases of a test; in a campaign with a time budget so many of them, which its order draws."""
    if _UNTIL not in os.environ or len(cases) <= at_most:
        return list(cases)
    return random.Random(ORDER).sample(cases, at_most)


def seeds(usual: int, *, theme: str = "", times: int = 4) -> list[int]:
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

"""Two components on disks of their own: one machine crashes, and later the other; or both lose their power at once.

A machine dies before one of its durable steps. After a power failure its disk has what the kind of loss leaves; after
the death of its process alone, what is not synced is still in memory, and a later power failure may take it. Or its
disk refuses that step once: the process goes on, or gives up with an error and is started again.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emberkeep.base.errors import EmberkeepError
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.observed import observed
from tests.support.crashes.recorded import Died, Interruption, Loss, refusing

SIDES = (0, 1)
Roots = tuple[Path, Path]


class Play(Protocol):
    """Both components, and what the outside knows of them."""

    def go_on(self, roots: Roots, disks: tuple[FollowedFiles, FollowedFiles], lost: frozenset[int]) -> None:
        """Start both from their disks, check what was promised, and go on to the end. The disks may end it anywhere.

        ``lost``: whose machine has lost its power since the last call. Raises AssertionError for a broken promise.
        """

    def check_end(self, roots: Roots) -> None:
        """Raise AssertionError unless everything that was to be done is done, once."""


@dataclass(frozen=True)
class Pair:
    name: str
    begin: Callable[[], Play]


@dataclass(frozen=True)
class PlannedCrash:
    """``side`` dies before its step ``step``, counted from the last crash.

    ``losses``: of both disks. CLEAN is the death of the process. None: nothing dies, the disk of ``side`` refuses the
    step.
    """

    side: int
    step: int
    losses: tuple[Loss, Loss] | None

    def __str__(self) -> str:
        how = "refused" if self.losses is None else "/".join(map(str, self.losses))
        return f"{'first' if self.side == 0 else 'second'} at step {self.step}: {how}"


@dataclass
class PairPoints:
    """``at_once``: points at which both have crashed together; ``after``: one, and then the other. ``of``: how many."""

    at_once: int = 0
    after: int = 0
    at_once_of: int = 0
    after_of: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def steps_of(pair: Pair, scratch: Path) -> tuple[int, int]:
    """Return the number of durable steps of both sides, without a crash."""
    _, counts = _play(pair, (), scratch)
    return counts[0]


def try_crashes(pair: Pair, crashes: Sequence[PlannedCrash], scratch: Path) -> str:
    """Play a pair through these crashes. Return what is wrong, or ""."""
    try:
        _play(pair, crashes, scratch)
    except (AssertionError, EmberkeepError, OSError) as error:
        return f"{pair.name}: {'; then '.join(map(str, crashes))}: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(scratch / "pair", ignore_errors=True)
    return ""


def every_crash_at_once(steps: tuple[int, int]) -> Iterator[tuple[PlannedCrash, ...]]:
    """Yield each step of each side with each kind of loss of both disks, and with the disk's refusal."""
    for side in SIDES:
        for step in range(steps[side]):
            yield (PlannedCrash(side, step, None),)
            for one in Loss:
                for other in Loss:
                    yield (PlannedCrash(side, step, (one, other)),)


def some_crashes_in_turn(steps: tuple[int, int], seed: str) -> Iterator[tuple[PlannedCrash, ...]]:
    """Yield crashes of one machine, and then of the other, drawn from a seed, without end."""
    chance = random.Random(seed)
    while True:
        first = chance.choice(SIDES)
        yield tuple(
            PlannedCrash(side, chance.randrange(steps[side]), _alone(side, chance.choice([*Loss, None])))
            for side in (first, 1 - first)
        )


def crashes_in_turn(steps: tuple[int, int]) -> int:
    """Return how many different crashes in turn there are: all pairs of steps, with the kinds of both."""
    return 2 * steps[0] * steps[1] * (len(Loss) + 1) ** 2


def _alone(side: int, loss: Loss | None) -> tuple[Loss, Loss] | None:
    if loss is None:
        return None
    return (loss, Loss.CLEAN) if side == 0 else (Loss.CLEAN, loss)


def _play(pair: Pair, crashes: Sequence[PlannedCrash], scratch: Path) -> tuple[Play, list[tuple[int, int]]]:
    play, counts = pair.begin(), list[tuple[int, int]]()
    roots = (scratch / "pair" / "first", scratch / "pair" / "second")
    for root in roots:
        root.mkdir(parents=True)
    disks = (FollowedFiles(roots[0], remembers=False), FollowedFiles(roots[1], remembers=False))
    lost: frozenset[int] = frozenset()
    for crash in (*crashes, None):
        for side in SIDES:
            disks[side].begin_again(_interruption(crash) if crash is not None and crash.side == side else None)
        with observed(*disks), suppress(*_ends(crash)):
            play.go_on(roots, disks, lost)
        counts.append((disks[0].steps, disks[1].steps))
        if crash is None:
            break
        disks, lost = _restarted(roots, disks, crash)
    play.check_end(roots)
    return play, counts


def _interruption(crash: PlannedCrash) -> Interruption:
    if crash.losses is None:
        return refusing(crash.step)
    return lambda step: Died() if step == crash.step else None


def _ends(crash: PlannedCrash | None) -> tuple[type[BaseException], ...]:
    """Return with what both may end instead of coming to their end."""
    if crash is None:
        return ()
    return (EmberkeepError, OSError) if crash.losses is None else (Died,)


def _restarted(
    roots: Roots, disks: tuple[FollowedFiles, FollowedFiles], crash: PlannedCrash
) -> tuple[tuple[FollowedFiles, FollowedFiles], frozenset[int]]:
    """Return the disks as they are after a crash, at their places, and who has lost something."""
    if crash.losses is None:
        return disks, frozenset()
    found = list(disks)
    lost = frozenset(side for side in SIDES if crash.losses[side] is not Loss.CLEAN)
    for side in lost:
        built = roots[side].with_name("built")
        disks[side].build(built, crash.losses[side])
        shutil.rmtree(roots[side])
        built.rename(roots[side])
        found[side] = FollowedFiles(roots[side], remembers=False)
    return (found[0], found[1]), lost

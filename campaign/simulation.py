"""The level ``simulation``: worlds on virtual time, on all cores, until the time is over."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from campaign.playing import play_world
from campaign.progress import ROOT, ROUND, Failure, Figures, Progress, figures_of, save
from campaign.shrinking import shrink
from campaign.swarm import draw_world
from campaign.world import KeptWorld, World, encode, read
from emberkeep.base.files.durable import write_file

KEPT = ROOT / "tests" / "regression" / "worlds"
CHUNK = 8  # worlds that a process plays before it reports
FAILURES_AT_MOST = 10
Shown = Callable[[str], None]
Result = tuple[Figures, str]  # the violation, or ""


def world_of(seed: int, number: int, favoured: tuple[str, ...]) -> World:
    """Return a world of a campaign."""
    return draw_world(f"{seed}-{number}", favoured)


def play_chunk(seed: int, numbers: range, favoured: tuple[str, ...]) -> list[Result]:
    """Play worlds in this process."""
    results: list[Result] = []
    with collected_at_the_end():
        for number in numbers:
            world = world_of(seed, number, favoured)
            played = play_world(world)
            results.append((figures_of(world, played), played.violation))
    return results


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """Let the garbage collector wait while a few worlds are played: what a world has made becomes garbage at once."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def run(progress: Progress, state: Path, until: float, processes: int, show: Shown) -> None:
    """Continue a campaign until a time (of ``time.monotonic``), or until ``FAILURES_AT_MOST`` worlds have failed.

    A world counts if all before it count, so that the campaign can continue in another run.
    """
    progress.begin_run(processes)
    note_mended(progress)
    context = get_context("forkserver")
    context.set_forkserver_preload(["campaign.simulation"])
    began = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        while time.monotonic() < until and len(progress.failures) < FAILURES_AT_MOST:
            for numbers, results in _round(pool, progress, until):
                for number, (figures, violation) in zip(numbers, results, strict=True):
                    favoured = progress.favoured
                    progress.took(figures)
                    if violation:
                        show(f"world {number}: {violation}")
                        world = world_of(progress.seed, number, favoured)
                        progress.failures.append(keep_failure(world, number, violation))
                        show(f"kept as {progress.failures[-1].kept}")
                now = time.monotonic()
                progress.seconds += now - began
                began = now
                save(state, progress)
            show(f"{progress.next} worlds, {len(progress.failures)} failed, {len(progress.figures.triples)} triples")


def _round(pool: ProcessPoolExecutor, progress: Progress, until: float) -> Iterator[tuple[range, list[Result]]]:
    """Yield the worlds that are left of this round, in order, as long as there is time."""
    first, end = progress.next, (progress.next // ROUND + 1) * ROUND
    chunks = [range(start, min(start + CHUNK, end)) for start in range(first, end, CHUNK)]
    played: list[tuple[range, Future[list[Result]]]] = [
        (numbers, pool.submit(play_chunk, progress.seed, numbers, progress.favoured)) for numbers in chunks
    ]
    try:
        for order, (numbers, future) in enumerate(played):
            if order and time.monotonic() > until:
                return
            yield numbers, future.result()
    finally:
        for _, future in played:
            future.cancel()


def note_mended(progress: Progress) -> None:
    """Move the failures whose kept worlds break no rule any more, because their bugs were mended."""
    for failure in list(progress.failures):
        path = ROOT / failure.kept
        if path.exists() and not play_world(read(path).world).report.violations:
            progress.failures.remove(failure)
            progress.mended.append(failure)


def keep_failure(world: World, number: int, violation: str, folder: Path = KEPT) -> Failure:
    """Shrink a failing world and keep it as a regression test."""
    small = shrink(world, lambda candidate: _kind(play_world(candidate).violation) == _kind(violation))
    path = keep(small, play_world(small).violation, folder)
    return Failure(number, violation, str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path))


def _kind(violation: str) -> tuple[str, bool]:
    """Return the rule, and whether a job waits for something: a world with too few slots is no smaller failing one."""
    return violation.partition(":")[0], "(waits for: " in violation


def keep(world: World, found: str, folder: Path = KEPT) -> Path:
    """Write a world into the folder whose worlds ``make test`` plays."""
    data = encode(KeptWorld(found=found, world=world))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.partition(':')[0]}-{hashlib.sha256(data).hexdigest()[:8]}.json"
    write_file(path, data, mode=0o644)  # it becomes part of the repository
    return path

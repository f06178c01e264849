"""Tries the crash points of all components, then those of pairs, until the time is over.

Of a pair, all crashes at once are tried, and as many crashes in turn, drawn from the seed: there are too many for all.
Each continues where the run before has stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context

import structlog

from campaign.crashes.figures import FAILURES_AT_MOST, ComponentFigures, CrashFigures, PairFigures
from tests.support.crashes.component import try_component
from tests.support.crashes.everything import COMPONENTS, PAIRS
from tests.support.crashes.pairs.pair import (
    crashes_in_turn,
    every_crash_at_once,
    some_crashes_in_turn,
    steps_of,
    try_crashes,
)
from tests.support.crashes.places import scratch_directory

CHUNK = 50  # crashes that a process tries before it reports
Shown = Callable[[str], None]
Task = tuple[str, bool, int]  # pair, whether at once, number of its first crash


def run(figures: CrashFigures, seed: int, until: float, processes: int, show: Shown, took: Callable[[], None]) -> None:
    """Try all components, then pairs until a time (of ``time.monotonic``). ``took``: called after each report."""
    began = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver"), initializer=quiet) as pool:
        for name, component in zip(_names(), pool.map(try_one, range(len(COMPONENTS))), strict=True):
            figures.components[name] = component
            for failure in component.failures:
                show(failure)
        took()
        _try_pairs(pool, figures, seed, until, processes, show, took)
    figures.seconds += time.monotonic() - began
    took()


def _names() -> list[str]:
    return [component.name for component in COMPONENTS]


def _try_pairs(
    pool: ProcessPoolExecutor,
    figures: CrashFigures,
    seed: int,
    until: float,
    processes: int,
    show: Shown,
    took: Callable[[], None],
) -> None:
    for name, steps in zip(PAIRS, pool.map(steps_of_one, PAIRS), strict=True):
        known = figures.pairs.get(name)
        if known is None or known.steps != steps:  # the code has changed, and the numbers of its steps
            known = figures.pairs[name] = PairFigures(steps=steps)
        known.at_once_of = sum(1 for _ in every_crash_at_once(steps))
        known.in_turn_of = crashes_in_turn(steps)
    running: dict[Future[list[str]], Task] = {}
    while running or time.monotonic() < until:
        for name in PAIRS:
            busy = [task for task in running.values() if task[0] == name]
            # One at a time of each pair, so that what was tried is always the beginning of what there is.
            if not busy and time.monotonic() < until and len(running) < processes + len(PAIRS):
                pair = figures.pairs[name]
                at_once = pair.at_once < pair.at_once_of and pair.at_once <= pair.in_turn
                start = pair.at_once if at_once else pair.in_turn
                running[pool.submit(try_chunk, name, seed, at_once, start)] = (name, at_once, start)
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name, at_once, start = running.pop(future)
            _add(figures.pairs[name], future.result(), at_once=at_once, start=start, show=show)
        took()
    for name, pair in figures.pairs.items():
        show(
            f"{name}: {pair.at_once} of {pair.at_once_of} crashes at once, {pair.in_turn} of {pair.in_turn_of} in "
            f"turn, {len(pair.failures)} failed"
        )


def _add(pair: PairFigures, results: list[str], *, at_once: bool, start: int, show: Shown) -> None:
    if at_once:
        pair.at_once = start + len(results)
    else:
        pair.in_turn = start + len(results)
    for failure in filter(None, results):
        show(failure)
        if len(pair.failures) < FAILURES_AT_MOST:
            pair.failures.append(failure)


# --- in other processes -----------------------------------------------------------------------------------------------


def quiet() -> None:
    """Log nothing: components log each loss that they find."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)


def try_one(number: int) -> ComponentFigures:
    """Try a component, in this process."""
    component = COMPONENTS[number]
    with scratch_directory() as scratch:
        points = try_component(component, scratch)
    return ComponentFigures(
        component.process, dict(points.tried), points.different, tuple(points.failures[:FAILURES_AT_MOST])
    )


def steps_of_one(name: str) -> tuple[int, int]:
    """Return the number of steps of both sides of a pair."""
    with scratch_directory() as scratch:
        return steps_of(PAIRS[name], scratch)


def try_chunk(name: str, seed: int, at_once: bool, start: int) -> list[str]:
    """Try some crashes of a pair, in this process. Return for each what is wrong, or ""."""
    pair = PAIRS[name]
    with scratch_directory() as scratch:
        steps = steps_of(pair, scratch / "count")
        crashes = every_crash_at_once(steps) if at_once else some_crashes_in_turn(steps, f"{seed}/{name}")
        return [try_crashes(pair, planned, scratch) for planned in islice(crashes, start, start + CHUNK)]

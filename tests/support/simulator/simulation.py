"""Runs a whole cluster from one seed: real actors, virtual time, faults; then heals it and requires it to settle.

    python -m tests.support.simulator.simulation --seed 17 --verbose
    python -m tests.support.simulator.simulation --seeds 1000

Same seed, same history, on any machine and with any hash seed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from tests.support.simulator.cluster import ClusterPlan, SimCluster
from tests.support.simulator.faults import Nemesis
from tests.support.simulator.history import History
from tests.support.simulator.properties import TICK, Properties
from tests.support.simulator.scenes import THEMES, Scene, scene_of
from tests.support.simulator.standby_properties import StandbyProperties
from tests.support.simulator.virtual_loop import DeadlockError, StepLimitError, VirtualLoop, seeded_random

LOOK_EVERY = 1.0  # seconds between two checks of what the JobManager shows
SETTLE_BOUND = 100.0  # seconds after the last fault, in addition to the work itself
FREE_BOUND = 60.0
SHARE_BOUND = 100.0  # an executor that hangs while it leaves is ended after 30 s, and there may be several rounds
# A group is abandoned after at most two retention intervals of 20 s, and deleted two intervals later. BLOBs of unknown
# jobs after a restart are abandoned within 45 s before that.
BLOBS_BOUND = 180.0
EVENTS_SHOWN = 60
COLLECT_EVERY = 20  # runs between two garbage collections

Story = Callable[["Run"], Awaitable[None]]


@dataclass(frozen=True)
class Report:
    """Result of one run."""

    seed: str
    violations: tuple[str, ...]
    digest: str
    counts: Counter[str]
    virtual_seconds: float
    steps: int
    history: History = field(repr=False)

    def failure(self) -> str:
        """Describe the violations for people, with the command that replays the run and its last events."""
        lines = [f"seed {self.seed}: {len(self.violations)} violation(s)"]
        lines += [f"  {violation}" for violation in self.violations]
        lines.append(f"replay: python -m tests.support.simulator.simulation --seed {self.seed} --verbose")
        lines.append(f"last {EVENTS_SHOWN} events:")
        lines += [f"  {event}" for event in self.history.last(EVENTS_SHOWN)]
        return "\n".join(lines)


class Violated(Exception):
    """A property has been violated; the run stops."""


class Run:
    """One simulated cluster with its watchers. ``story`` drives it."""

    def __init__(self, loop: VirtualLoop, cluster: SimCluster) -> None:
        self.loop = loop
        self.cluster = cluster
        self.properties = Properties(cluster)
        self.standbys = StandbyProperties(cluster)
        self.jobs_shown: list[JobView] = []
        self.managers_shown: list[TaskManagerView] = []
        self._looks = 0
        self._looking: tuple[int, asyncio.Task[None]] | None = None  # with the number of the JobManager's start

    async def watch(self) -> None:
        """Check the properties until one is violated; then raise Violated."""
        next_look = 0.0
        while True:
            await asyncio.sleep(TICK)
            self.properties.tick()
            self.standbys.tick()
            if self.loop.time() >= next_look:
                next_look = self.loop.time() + LOOK_EVERY
                self._look()
            if self.cluster.history.violations:
                raise Violated

    def _look(self) -> None:
        """Ask the JobManager, from inside its process, what it shows, unless an earlier question is still open."""
        process, service, lives = self.cluster.jm_process, self.cluster.jm_service, self.cluster.jm_lives
        if process is None or service is None or not process.alive or self.cluster.store.own is not None:
            return
        if self._looking is not None and self._looking[0] == lives and not self._looking[1].done():
            return

        async def look() -> None:
            await service.ready()
            jobs, managers = await service.gateway.jobs(), await service.gateway.task_managers()
            if lives != self.cluster.jm_lives:
                return  # another JobManager has started in the meantime
            self.jobs_shown, self.managers_shown = jobs, managers
            self._looks += 1
            self.properties.look(jobs, managers)

        task = process.party.scope.spawn(look(), "look")
        task.add_done_callback(lambda done: self._looked(done, lives))
        self._looking = (lives, task)

    def _looked(self, task: asyncio.Task[None], lives: int) -> None:
        if not task.cancelled() and task.exception() is not None and lives == self.cluster.jm_lives:
            self.cluster.history.violate("bug", f"the JobManager cannot show its state: {task.exception()!r}")

    async def until(self, reason_not: Callable[[], list[str]], bound: float, rule: str) -> None:
        """Wait until ``reason_not`` is empty for two looks. Violate ``rule`` after ``bound`` seconds."""
        end = self.loop.time() + bound
        quiet_since: int | None = None
        while True:
            reasons = reason_not()
            if reasons:
                quiet_since = None
            elif quiet_since is None:
                quiet_since = self._looks
            elif self._looks >= quiet_since + 2:
                return
            if self.loop.time() > end:
                self.cluster.history.violate(rule, f"after {bound:.0f} s: {'; '.join(reasons or ['not yet stable'])}")
                raise Violated
            await asyncio.sleep(TICK)

    async def settle(self, bound: float = SETTLE_BOUND) -> None:
        """Wait until every accepted job has ended or runs as a stream, and namespaces have their share."""
        work = sum(job.script.seconds or 0.0 for job in self.cluster.jobs)
        await self.until(self.properties.unsettled, bound + 3 * work, "a")
        if self.properties.namespaces.is_limited:
            await self.until(self.properties.above_quotas, SHARE_BOUND, "w")
        if self.properties.namespaces.has_guarantees:
            await self.until(self.properties.unmet_guarantees, SHARE_BOUND, "x")

    async def end_everything(self) -> None:
        """Cancel streaming jobs; then wait until all jobs have ended, task managers are free and no BLOB is left."""
        for job in self.cluster.jobs:
            if job.script.seconds is None:
                self.cluster.cancel(job)
        await self.settle()
        await self.until(lambda: self.properties.not_free(self.cluster.nodes, self.managers_shown), FREE_BOUND, "f")
        if self.cluster.keeps_standbys:
            await self.until(self.standbys.unsettled, FREE_BOUND, "s")
        await self.until(self.cluster.blobs.left, BLOBS_BOUND, "h")


def play(
    plan: ClusterPlan,
    story: Story,
    *,
    step_limit: int = 20_000_000,
    make_cluster: Callable[[VirtualLoop, ClusterPlan], SimCluster] = SimCluster,
) -> Report:
    """Run ``story`` on a cluster and watch it. A violation is reported, never raised."""
    with _quiet_logs():
        loop = VirtualLoop(step_limit=step_limit)
        run = Run(loop, make_cluster(loop, plan))
        history = run.cluster.history
        loop.set_exception_handler(lambda _, context: _unhandled(history, context))
        try:
            loop.run_until_complete(_watched(run, story))
        except Violated:
            pass
        except (DeadlockError, StepLimitError) as error:
            history.violate("bug", str(error))
        finally:
            violations, digest, virtual = tuple(history.violations), history.digest(), loop.time()
            violations += _end(run)
            run.cluster.close()
    return Report(plan.seed, violations, digest, history.counts, virtual, loop.steps, history)


def _end(run: Run) -> tuple[str, ...]:
    """End all tasks without effects on the cluster. Return a violation that names those that do not end."""
    run.cluster.network.closed = True
    run.loop.set_exception_handler(lambda _, __: None)
    stubborn = run.loop.end_all()
    run.loop.close()
    return (f"bug: does not end when cancelled: {', '.join(stubborn)}",) if stubborn else ()


async def _watched(run: Run, story: Story) -> None:
    run.cluster.start()
    watching = asyncio.create_task(run.watch(), name="watch")
    telling = asyncio.create_task(_tell(story, run), name="story")
    try:
        done, _ = await asyncio.wait({watching, telling}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        watching.cancel()
        telling.cancel()


async def _tell(story: Story, run: Run) -> None:
    await story(run)


def _unhandled(history: History, context: dict[str, Any]) -> None:
    history.violate("bug", f"{context.get('message')}: {context.get('exception')!r}")


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Disable logs: those of the actors would take most of the output and half of the time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        structlog.configure(**before)


# --- the random story -------------------------------------------------------------------------------------------------


def story_of(scene: Scene) -> Story:
    """Return a scene's story: submit and cancel jobs during faults, then require all to settle and leave nothing."""

    async def story(run: Run) -> None:
        cluster, seed = run.cluster, scene.plan.seed
        rng = seeded_random(seed, "clients' plans")
        nemesis = Nemesis(cluster, seeded_random(seed, "nemesis"), scene.menace)
        harm = asyncio.create_task(nemesis.run(), name="nemesis")
        clients = asyncio.create_task(clients_of(cluster, scene, rng), name="clients")
        await asyncio.sleep(scene.chaos_seconds)
        harm.cancel()
        nemesis.heal()
        await clients
        await run.settle()
        await run.end_everything()

    return story


async def clients_of(cluster: SimCluster, scene: Scene, rng: random.Random) -> None:
    """Submit the scene's jobs, and cancel some."""
    times = sorted(rng.uniform(0.0, scene.chaos_seconds * 0.8) for _ in scene.scripts)
    for number, (at, script) in enumerate(zip(times, scene.scripts, strict=True)):
        await asyncio.sleep(max(0.0, at - cluster.loop.time()))
        job = cluster.submit(f"job-{number}", script)
        if rng.random() < 0.2:
            cluster.loop.call_later(rng.uniform(0.0, scene.chaos_seconds), cluster.cancel, job)


def simulate(seed: int | str) -> Report:
    """Run one seed."""
    scene = scene_of(str(seed))
    return play(scene.plan, story_of(scene))


@dataclass
class Batch:
    """Result of many seeds. ``seconds`` is real time."""

    reports: int = 0
    failures: list[Report] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    virtual_seconds: float = 0.0
    seconds: float = 0.0


def simulate_many(
    seeds: Iterable[int | str], *, stop_after: int = 5, on_report: Callable[[Report], None] | None = None
) -> Batch:
    """Run seeds in order until ``stop_after`` of them have failed."""
    batch, began = Batch(), time.monotonic()
    gc.disable()
    try:
        for seed in seeds:
            report = simulate(seed)
            batch.reports += 1
            batch.counts.update(report.counts)
            batch.virtual_seconds += report.virtual_seconds
            if report.violations:
                batch.failures.append(report)
            if on_report is not None:
                on_report(report)
            if batch.reports % COLLECT_EVERY == 0:
                gc.collect()
            if len(batch.failures) >= stop_after:
                break
    finally:
        gc.enable()
    batch.seconds = time.monotonic() - began
    return batch


def main(arguments: list[str] | None = None) -> int:
    """Run the command line that the module describes. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulator.simulation", description=__doc__)
    parser.add_argument("--seed", help="run this seed alone: a number, or a theme and a number, such as split-17")
    parser.add_argument("--seeds", type=int, default=100, help="run so many seeds")
    parser.add_argument("--theme", choices=sorted(THEMES), help="only seeds of this theme")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--verbose", action="store_true", help="print every event (with --seed)")
    parser.add_argument("--messages", action="store_true", help="print single messages too (with --seed)")
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    if options.seed is not None:
        report = simulate(options.seed)
        if options.verbose or options.messages:
            for event in report.history.last(len(report.history.events), routine=options.messages):
                write(f"{event}\n")
        write(f"digest {report.digest}, {report.virtual_seconds:.1f} virtual seconds, {report.steps} steps\n")
        write(f"{report.failure()}\n" if report.violations else "all properties hold\n")
        return 1 if report.violations else 0
    numbers = range(options.first, options.first + options.seeds)
    batch = simulate_many(numbers if options.theme is None else [f"{options.theme}-{number}" for number in numbers])
    for report in batch.failures:
        write(f"{report.failure()}\n\n")
    for what, count in sorted(batch.counts.items()):
        write(f"{count:8d}  {what}\n")
    write(f"{batch.reports} seeds, {len(batch.failures)} failed, {batch.reports / batch.seconds:.1f} seeds/s, ")
    write(f"{batch.virtual_seconds / batch.seconds:.0f} virtual seconds per second\n")
    return 1 if batch.failures else 0


if __name__ == "__main__":
    sys.exit(main())

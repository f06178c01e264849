"""Worlds in which planted bugs are looked for, beside the themes of the simulator.

Each world takes a number and returns violations of the form "rule: what happened". An unspoiled Emberkeep has none.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.base.errors import EmberkeepError, IllegalTransition
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.local_state.errors import Fenced
from emberkeep.taskmanager.ports import ExecutorKey
from tests.property.leadership_world import Budget
from tests.property.leadership_world import World as LeadershipWorld
from tests.property.test_leadership import settle
from tests.simulation.test_cluster import attempt, drivers, executors, running, status, wait_for
from tests.simulation.test_cut_off_leader import Cut
from tests.simulation.test_detection import LIMITS, SECONDS, Tally, world_of
from tests.simulation.test_procedures import displaced, impatient, troubled
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.contenders import simulate_contended
from tests.support.simulator.properties import TICK
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, Story, play, simulate
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, Node

World = Callable[[int], tuple[str, ...]]
STREAM = Script(seconds=None, executors=1)


def seeded(theme: str) -> World:
    """Return the world of one theme of the simulator."""
    return lambda number: simulate(f"{theme}-{number}").violations


def asked_to_stop(number: int) -> tuple[str, ...]:
    """Streams are asked for savepoints and stops while drivers, leaders and the store fail."""
    return troubled(number).violations


def out_of_time(number: int) -> tuple[str, ...]:
    """Streams are asked to stop, and cannot do so in time."""
    return impatient(number).violations


def without_a_place(number: int) -> tuple[str, ...]:
    """Streams are asked to stop while no node may take their drivers."""
    return displaced(number).violations


def contended(number: int) -> tuple[str, ...]:
    """Two JobManagers, of which one does not know yet that the other is the leader."""
    return simulate_contended(f"contend-{number}").violations


def elections(number: int) -> tuple[str, ...]:
    """Two leadership machines and their jobs, in one random order of grants, losses, submissions, ends and deaths."""
    rng = random.Random(number)
    world = LeadershipWorld(Budget(submissions=3, expirations=4, suspensions=3, deaths=2))
    try:
        for _ in range(120):
            trouble = rng.random() < 0.1
            steps = [step for step in world.steps() if (step.what in ("expire", "suspend", "die")) is trouble]
            if steps:
                world.take(rng.choice(steps))
        settle(world, "A", "B")
        leaders = [name for name, contender in world.contenders.items() if contender.machine.may_decide]
        assert len(leaders) == 1, f"leaders: {leaders}"
    except (AssertionError, IllegalTransition) as error:
        return (f"election: {error}",)
    return ()


def told(story: Story, number: int, **plan: Any) -> tuple[str, ...]:
    return play(ClusterPlan(seed=f"planted {number}", **plan), story).violations


# Delays between the attempts of a stream that always fails: as configured for the simulation, less the jitter of 10 %.
# The first restart has no delay.
LEAST_DELAYS = (0.0, *(0.9 * min(5.0, 1.0 * 1.5**failures) for failures in range(7)))


def failing_forever(number: int) -> tuple[str, ...]:
    """A driver is killed as soon as its attempt runs, until the job has failed."""

    async def story(run: Run) -> None:
        violate = run.cluster.history.violate
        job = run.cluster.submit("stream", STREAM)
        begun: list[float] = []
        run.cluster.store.on_attempt.append(lambda _, __: begun.append(run.loop.time()))
        killed: list[float] = []
        while status(run, job) is not JobStatus.FAILED:
            for process in drivers(run):
                if len(killed) < len(begun):
                    run.cluster.machines.kill(process)
                    killed.append(run.loop.time())
            if len(begun) > len(LEAST_DELAYS) + 1:
                violate("back-off", f"attempt {len(begun)} of a job that is restarted {len(LEAST_DELAYS)} times")
            await asyncio.sleep(TICK)
        delays = [after - before for after, before in zip(begun[1:], killed, strict=False)]
        if len(delays) != len(LEAST_DELAYS):
            violate("back-off", f"{len(delays)} restarts, not {len(LEAST_DELAYS)}")
        for delay, least in zip(delays, LEAST_DELAYS, strict=False):
            if delay < least:
                violate("back-off", f"restarted after {delay:.2f} s, not {least:.2f} s: {delays}")
        await run.end_everything()

    return told(story, number, task_managers=2)


def unrecorded_ends(number: int) -> tuple[str, ...]:
    """Scripts end while the leader cannot reach the store. Their executors end late, and a new job comes at once."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        jobs = [cluster.submit(f"batch-{each}", Script(seconds=5.0, executors=2)) for each in range(4)]
        for job in jobs:
            await running(run, job, number=1, executors=2)
        cluster.store.lose()
        await wait_for(run, lambda: len(drivers(run)) < len(jobs), "a driver has ended")
        cluster.store.away_since = None
        for each in range(2):
            cluster.submit(f"next-{each}", Script(seconds=1.0, executors=1))
        await run.settle()
        await run.end_everything()

    return told(story, number, task_managers=1, slots=10, driver_places=6, cores=20, memory_mb=60_000, slow_ends=1)


def room_for_all(number: int) -> tuple[str, ...]:
    """A quiet cluster in which each job fits in several ways: work is spread, and shared fairly."""

    async def story(run: Run) -> None:
        violate = run.cluster.history.violate
        streams = [run.cluster.submit(f"stream-{each}", STREAM) for each in range(3)]
        for each in streams:
            await running(run, each, number=1, executors=1)
        if len({driver.owner for driver in drivers(run)}) != 3:
            violate("placement", f"drivers on {[driver.owner for driver in drivers(run)]}")
        wide = run.cluster.submit("wide", Script(seconds=None, executors=3))
        await running(run, wide, number=1, executors=3)
        wides = [
            each for each in executors(run) if isinstance(each.key, ExecutorKey) and each.key.job_id == wide.job_id
        ]
        placed = Counter(each.owner for each in wides)
        if sorted(placed.values()) != [1, 1, 1]:
            violate("placement", f"executors of one job on {dict(placed)}")
        first = run.cluster.submit("first", Script(seconds=None, executors=6))
        await running(run, first, number=1, executors=6)
        greedy = [run.cluster.submit(f"greedy-{each}", Script(seconds=None, executors=6)) for each in range(2)]
        await wait_for(run, lambda: len(drivers(run)) == 7, "both wait for slots")
        await asyncio.sleep(5.0)
        run.cluster.cancel(first)
        await wait_for(run, lambda: sum(executors_of(run, job) for job in greedy) == 6, "they get what was given back")
        shares = [executors_of(run, job) for job in greedy]
        if shares != [3, 3]:
            violate("placement", f"two jobs with the same needs got {shares} slots")
        await run.end_everything()

    def executors_of(run: Run, job: SubmittedJob) -> int:
        keys = [each.key for each in executors(run)]
        return sum(isinstance(key, ExecutorKey) and key.job_id == job.job_id for key in keys)

    return told(story, number, task_managers=3, slots=4, cores=12, memory_mb=24_000)


def cut_off_leader(number: int) -> tuple[str, ...]:
    """No task manager reaches the leader for three leases: it must not presume drivers lost."""

    async def story(run: Run) -> None:
        jobs = [run.cluster.submit(f"stream-{each}", STREAM) for each in range(2)]
        for job in jobs:
            await running(run, job, number=1, executors=1)
        cut = Cut(run, 1, 2, one_way=number % 2 == 0)
        await asyncio.sleep(30.0)
        shown = [status(run, job) for job in jobs]
        if shown != [JobStatus.RUNNING] * 2 or [attempt(run, job) for job in jobs] != [1, 1]:
            run.cluster.history.violate("lease", f"a leader that nobody reaches takes its jobs to be {shown}")
        cut.heal()
        await run.settle()
        await run.end_everything()

    return told(story, number, task_managers=2)


def cut_off_drivers(number: int, **plan: Any) -> tuple[str, ...]:
    """A driver and its task manager lose all JobManagers, and still reach the storage. A newer attempt replaces it.

    For a while the node cannot read the storage either. Nobody can end the old driver from outside.
    """
    rng = random.Random(number)

    async def story(run: Run) -> None:
        cluster, violate = run.cluster, run.cluster.history.violate
        job = cluster.submit("stream", Script(seconds=None, executors=2))
        old = await running(run, job, number=1, executors=2)
        node = old.machine.name
        await asyncio.sleep(rng.uniform(0.0, 5.0))
        cut = Cut(run, int(node.removeprefix("node-")))
        if number % 2:
            await asyncio.sleep(rng.uniform(0.0, 5.0))
            cluster.truth.unreadable.add(node)
        new = await running(run, job, number=2, executors=2)
        if number % 2:
            await asyncio.sleep(rng.uniform(0.0, 10.0))
            if not old.alive:
                violate("scenario", "the old driver ended before it could know that it was superseded")
            cluster.truth.unreadable.clear()
        await wait_for(run, lambda: not old.alive, "the driver that is cut off has ended itself")
        before = cluster.truth.commits[job.job_id] if job.job_id is not None else 0
        await wait_for(run, lambda: job.job_id and cluster.truth.commits[job.job_id] > before + 2, "the stream goes on")
        cut.heal()
        await asyncio.sleep(2 * cluster.configuration[DRIVER_LEASE])
        if drivers(run) != [new] or attempt(run, job) != 2:
            violate("scenario", f"attempt {attempt(run, job)}, drivers {[each.name for each in drivers(run)]}")
        await run.end_everything()

    return told(story, number, task_managers=3, slots=2, **plan)


def cut_off_drivers_of_long_leases(number: int) -> tuple[str, ...]:
    """The same, where the task managers are configured with a lease that is six times the leader's."""
    return cut_off_drivers(number, driver_options={DRIVER_LEASE.key: "60s"})


def leaderless_drivers(number: int) -> tuple[str, ...]:
    """Drivers without any JobManager commit further as long as they read the storage (HA-9)."""
    rng = random.Random(number)

    async def story(run: Run) -> None:
        cluster = run.cluster
        job = cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=1)
        assert job.job_id is not None
        cluster.kill_job_manager()
        await asyncio.sleep(rng.uniform(1.0, 3.0) * cluster.configuration[DRIVER_LEASE])
        before = cluster.truth.commits[job.job_id]
        await wait_for(run, lambda: cluster.truth.commits[job.job_id or JobId("")] > before + 5, "batches are done")
        cluster.start_job_manager()
        await asyncio.sleep(2 * cluster.configuration[DRIVER_LEASE])
        if drivers(run) != [driver]:
            cluster.history.violate("scenario", f"drivers {[each.name for each in drivers(run)]}")
        await run.end_everything()

    return told(story, number, task_managers=2)


def sick_nodes(number: int) -> tuple[str, ...]:
    """Fifteen histories of good and bad nodes and jobs, judged by the detector."""
    tally = Tally()
    try:
        for seed in range(15 * number, 15 * number + 15):
            tally.run(world_of(seed, bad=seed % 3, faulty=seed % 4))
    except AssertionError as error:
        return (f"detection: {error}",)
    assert LIMITS.witnesses > 1, "or one job's word would be enough"
    if tally.false > 1 or tally.found < 0.5 * tally.shown:
        return (f"detection: {tally}",)
    return ()


def many_sick_nodes(number: int) -> tuple[str, ...]:
    """A history with more bad nodes than may be blocked."""
    world = world_of(number, bad=9)
    try:
        world.run(SECONDS)
    except AssertionError as error:
        return (f"detection: {error}",)
    return ()


def gateways(number: int) -> tuple[str, ...]:
    """Attempts of one job write through the state gateways of three nodes, while newer attempts begin.

    Once a request of an attempt was answered, no change that an older attempt begins has an effect, and no change that
    it has begun before is acknowledged.
    """
    with tempfile.TemporaryDirectory() as place:
        try:
            _write_through_gateways(random.Random(number), Path(place))
        except AssertionError as error:
            return (f"fence: {error}",)
    return ()


def _write_through_gateways(rng: random.Random, place: Path) -> None:
    nodes = [Node(place, f"node-{each}") for each in range(3)]
    newest = 1
    for step in range(30):
        node, caller = rng.choice(nodes), DRIVER_OF[rng.randint(max(1, newest - 1), newest)]
        if rng.random() < 0.1:
            node.restarted_gateway()
        overtaken_at = rng.choice(("listing", "create")) if newest < 4 and rng.random() < 0.3 else ""
        begun_with, elsewhere = newest, rng.choice(nodes)

        def overtake(method: str, at: str = overtaken_at, other: Node = elsewhere, than: int = newest) -> None:
            nonlocal newest
            if method == at and newest == than:
                newest = than + 1
                other.gateway.listing(DRIVER_OF[newest], other.path(""))

        node.durable.before = overtake
        name = f"offsets/{step}"
        try:
            node.write(name, b"x", caller)
            acknowledged = True
        except Fenced:
            acknowledged = False
        except EmberkeepError as error:
            raise AssertionError(f"attempt {caller.attempt} gets {error!r}") from error
        finally:
            node.durable.before = lambda _: None
        written = any(entry.name == name for entry in node.durable.listing("offsets")) if acknowledged else False
        written = written or (place / DRIVER_OF[1].job_id / name).exists()
        assert not acknowledged or caller.attempt == newest, f"{caller.attempt} is answered, {newest} has begun"
        assert not written or caller.attempt >= begun_with, f"{caller.attempt} has written, {begun_with} had begun"
        assert acknowledged or caller.attempt < newest, f"attempt {caller.attempt} is refused, and none is newer"

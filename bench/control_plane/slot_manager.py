"""The slot manager alone, with 10,000 task managers of 10 slots: no network, no clock, only its decisions.

Times are CPU times: one thread computes, so what else the machine does is no part of the answer.
"""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from bench.load.simulated import ONE_CORE, RUNTIME, SLOTS, task_manager
from bench.measure import Figure
from bench.plan import Plan
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.ledger import DriverNeed, HeldReport
from emberkeep.slots.model import Allocation, SlotRequirement, TaskManagerInfo
from emberkeep.slots.registered_task_managers import SilenceLimits
from emberkeep.slots.slot_manager import Matches, SlotManager

T = TypeVar("T")

_LOST_AFTER = 10.0
_ORPHAN_TIMEOUT = _LOST_AFTER  # whoever is silent is lost at once


def measure(plan: Plan) -> list[Figure]:
    """Speed of matching, cost of heartbeats, of a loss and of a submission, memory per task manager."""
    count = plan.size(10_000, 1_000)
    rounds = [_Round(count) for _ in plan.turns(f"slot manager: {count:,} task managers")]
    slots = f"{count * SLOTS:,} slots"

    def figure(name: str, unit: str, value: Callable[[_Round], float]) -> Figure:
        return Figure(name, unit, tuple(value(each) for each in rounds))

    return [
        figure(f"matching {slots}, 1 job", "slots/s", lambda r: r.one_job),
        figure(f"matching {slots}, {count // 10:,} jobs", "slots/s", lambda r: r.many_jobs),
        figure(f"registration, {count:,} task managers", "µs", lambda r: r.registration),
        figure("heartbeat without change", "µs", lambda r: r.unchanged),
        figure(f"heartbeat with {SLOTS} new allocations", "µs", lambda r: r.changed),
        figure(f"a lost task manager's {SLOTS} slots replaced", "ms", lambda r: r.replacement),
        figure("check of a submission", "ms", lambda r: r.obstacle),
        figure("a driver place given", "ms", lambda r: r.place),
        figure("a waiting driver's obstacle put in words", "ms", lambda r: r.explanation),
        Figure(f"memory per task manager with {SLOTS} slots in use", "KiB", (_memory_kib(count),)),
    ]


class Cluster:
    """A slot manager, and task managers that report what they are told to hold."""

    def __init__(self, count: int) -> None:
        self.slots = SlotManager(SilenceLimits(_LOST_AFTER, _ORPHAN_TIMEOUT), pending_timeout=20.0)
        self.infos = [task_manager(index) for index in range(count)]
        self._ids = itertools.count()
        for info in self.infos:
            self.register(info)

    def register(self, info: TaskManagerInfo, now: float = 0.0) -> None:
        self.slots.task_managers.register(info, HeldReport(0), now)

    def match(self, now: float = 0.0) -> Matches:
        return self.slots.match(now, lambda: AllocationId(f"{next(self._ids):032x}"))

    def want(self, jobs: int, slots_each: int) -> None:
        for order in range(jobs):
            job_id = JobId(f"{order:032x}")
            self.slots.jobs.add(job_id, order, 1)
            requirement = SlotRequirement(count=slots_each, profile=ONE_CORE, runtime=RUNTIME)
            self.slots.jobs.require(job_id, 1, "127.0.0.1:1000", (requirement,), {})

    def by_task_manager(self, matches: Matches) -> dict[TaskManagerInfo, list[Allocation]]:
        held: dict[TaskManagerInfo, list[Allocation]] = {info: [] for info in self.infos}
        for allotted in matches.slots:
            held[allotted.info].append(allotted.allocation)
        return held


class _Round:
    """One repetition: all figures on clusters of their own."""

    def __init__(self, count: int) -> None:
        total = count * SLOTS
        cluster = Cluster(count)
        cluster.want(1, total)
        seconds, matches = timed(cluster.match)
        _expect(len(matches.slots), total)
        self.one_job = total / seconds

        self.registration = timed(lambda: Cluster(count))[0] / count * 1e6
        cluster = Cluster(count)
        cluster.want(count // 10, 10 * SLOTS)
        seconds, matches = timed(cluster.match)
        _expect(len(matches.slots), total)
        self.many_jobs = total / seconds
        self._heartbeats(cluster, matches)
        self._loss(cluster)
        self._submission(count)

    def _heartbeats(self, cluster: Cluster, matches: Matches) -> None:
        held = [(info, tuple(allocations)) for info, allocations in cluster.by_task_manager(matches).items()]

        def report() -> None:
            for info, allocations in held:
                cluster.slots.task_managers.take_report(info.id, info.instance, HeldReport(1, allocations), 1.0)

        def beat() -> None:
            for info, _ in held:
                cluster.slots.task_managers.take_heartbeat(info.id, info.instance, 2, 2.0)

        self.changed = timed(report)[0] / len(held) * 1e6
        self.unchanged = timed(beat)[0] / len(held) * 1e6

    def _loss(self, cluster: Cluster) -> None:
        """The first task manager falls silent while all slots are taken; a new one has registered before."""
        spare = task_manager(len(cluster.infos))
        for info in cluster.infos[1:]:
            cluster.slots.task_managers.take_heartbeat(info.id, info.instance, 3, 2.0 + _LOST_AFTER)
        cluster.register(spare, 2.0 + _LOST_AFTER)

        def replace() -> Matches:
            _expect(len(cluster.slots.expire(2.0 + _LOST_AFTER).lost), 1)
            return cluster.match(2.0 + _LOST_AFTER)

        seconds, matches = timed(replace)
        _expect(len(matches.slots), SLOTS)
        self.replacement = seconds * 1e3

    def _submission(self, count: int) -> None:
        cluster = Cluster(count)
        need = DriverNeed(memory_mb=1408, python=RUNTIME.python)
        seconds, obstacle = timed(lambda: cluster.slots.obstacle(need, ONE_CORE))
        _expect(len(obstacle), 0)
        self.obstacle = seconds * 1e3
        job_id = JobId("f" * 32)
        cluster.slots.jobs.add(job_id, 0, 0)
        cluster.slots.jobs.request_place(job_id, need, 1, 0.0)
        self.explanation = timed(lambda: cluster.slots.missing(job_id))[0] * 1e3
        seconds, matches = timed(cluster.match)
        _expect(len(matches.places), 1)
        self.place = seconds * 1e3


def _memory_kib(count: int) -> float:
    """What Python allocates for the slot manager's accounts: task managers, what they hold, and jobs."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cluster = Cluster(count)
        cluster.want(count // 10, 10 * SLOTS)
        for info, allocations in cluster.by_task_manager(cluster.match()).items():
            cluster.slots.task_managers.take_report(info.id, info.instance, HeldReport(1, tuple(allocations)), 1.0)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / count / 1024
    finally:
        tracemalloc.stop()


def timed(work: Callable[[], T]) -> tuple[float, T]:
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def _expect(found: int, wanted: int) -> None:
    """A fast wrong answer is no measurement."""
    if found != wanted:
        raise SystemExit(f"the slot manager decided {found}, not {wanted}: a bug, so there is no measurement")

"""Properties of the standby processes of a simulated cluster, checked against the census of processes.

(q) a standby process becomes at most one process of a job, the one that its record names, and only one of the task
manager's own release;
(r) a standby process that fails costs a cold start: the start of the job's process does not fail with it, nothing is
left of it when the start is over, no process begins that was asked to end during its start, and where nothing but
standby processes fails, no attempt is lost;
(s) a task manager has no more standby processes than its pool keeps, but for a moment; it ends them before it ends in
order, and the next one has a pool of its own; in the end the pool is complete, and nothing is left of others;
(t) standby processes are started only in memory that the processes of jobs leave free, and give it back within a bound;
(u) a reserved standby becomes only the driver of its own job (checked in ``SimStandby``), a job has at most one in the
cluster but for a moment, and in the end there are none, and no files are held for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from emberkeep.base.ids import JobId
from emberkeep.daemons.taskmanager.standbys import LOOK_SECONDS
from emberkeep.slots.standbys.events import StandbyKind
from emberkeep.slots.standbys.machine import PRESSURE_SECONDS
from emberkeep.slots.standbys.members import StandbyState
from emberkeep.taskmanager.ports import DriverKey, ProcessKey
from tests.support.simulator.cluster import DRIVER_MEMORY_MB, SimCluster, TaskManagerNode
from tests.support.simulator.scripts import script_of
from tests.support.simulator.standbys import SimStandby, Stage

# A process that fails while it is taken has 5 s to answer, and a killed one may take up to 13 s to end.
EXTRA_BOUND = 22.0
MEMORY_BOUND = PRESSURE_SECONDS + 16.0
# A task manager that is cut off, or frozen, learns late that a job's reserved standby has moved.
SEVERAL_BOUND = 90.0
SLACK = 0.5


@dataclass
class StandbyProperties:
    """Watches the standby processes of a cluster and reports violations to its history."""

    cluster: SimCluster
    extra_since: dict[tuple[str, int], float] = field(default_factory=dict)  # by task manager and its life
    over_since: dict[tuple[str, int], float] = field(default_factory=dict)
    several_since: dict[str, float] = field(default_factory=dict)  # by job

    def __post_init__(self) -> None:
        self.cluster.room.standbys.on_start.append(self._started)
        if self.cluster.plan.only_standbys:
            self.cluster.store.on_attempt.append(self._attempt_recorded)

    def _violate(self, rule: str, what: str) -> None:
        self.cluster.history.violate(rule, what)

    def _attempt_recorded(self, job_id: JobId, attempt: int) -> None:
        if attempt > 1:
            self._violate("r", f"attempt {attempt} of {job_id[:8]}, and only standby processes have failed")

    def _started(self, standby: SimStandby) -> None:
        owner = standby.process.owner
        used = self._memory(owner, before=self.cluster.loop.time() - LOOK_SECONDS - SLACK)
        if used > self.cluster.plan.memory_mb:
            self._violate("t", f"{standby.process.name} starts: {used} of {self.cluster.plan.memory_mb} MiB are used")

    def _memory(self, owner: str, before: float = float("inf")) -> int:
        """Return the MiB of all drivers, executors and standby processes of a task manager.

        Those of jobs count if they have started before a time: the pool looks now and then.
        """
        machines = self.cluster.machines
        processes = [each for each in (*machines.drivers(), *machines.executors()) if each.owner == owner]
        jobs = [each.key for each in processes if each.started < before]
        # What is being taken has its memory from the slot or driver place of the job.
        waiting = self.cluster.room.standbys.waiting(owner)
        jobs += [each.process.claim for each in waiting if each.process.claim is not None]
        free = [each.profile.memory_mb for each in waiting if each.process.claim is None]
        return sum(self._memory_of(key) for key in jobs if key is not None) + sum(free)

    def _memory_of(self, key: ProcessKey) -> int:
        if isinstance(key, DriverKey):
            return DRIVER_MEMORY_MB
        return script_of(self.cluster.store.graphs[key.job_id].arguments).memory_mb

    def tick(self) -> None:
        """Check the census. Call every TICK seconds."""
        if not self.cluster.keeps_standbys:
            return
        for node in self.cluster.nodes:
            life = (node.id, node.lives)
            if node.agent is None or not node.agent.alive or node.agent.frozen:
                self.extra_since.pop(life, None)
                self.over_since.pop(life, None)
                continue
            self._check_number(node, life)
            self._check_memory(node, life)
        self._check_reserved()

    def _check_reserved(self) -> None:
        waiting = [each for each in self.cluster.room.standbys.waiting() if each.stage < Stage.ORDERED]
        reserved = Counter(each.reserved_for for each in waiting if each.reserved_for)
        several, now = {job_id for job_id, count in reserved.items() if count > 1}, self.cluster.loop.time()
        self.several_since = {job_id: self.several_since.get(job_id, now) for job_id in several}
        for job_id, since in self.several_since.items():
            if now - since > SEVERAL_BOUND:
                self._violate("u", f"job {job_id[:8]} has {reserved[job_id]} reserved standbys for long")

    def _check_number(self, node: TaskManagerNode, life: tuple[str, int]) -> None:
        room, now = self.cluster.room.standbys, self.cluster.loop.time()
        waiting = [each for each in room.waiting(node.id) if not _is_a_jobs(each, node)]
        present = Counter(each.profile.kind for each in waiting)
        assert node.launcher is not None
        pool = node.launcher.pool
        present[StandbyKind.DRIVER] -= len({each.job_id for each in pool.standbys()} - {None})
        extra = [f"{count} standby {kind.value}s" for kind, count in present.items() if count > pool.size(kind)]
        if not extra:
            self.extra_since.pop(life, None)
        elif now - self.extra_since.setdefault(life, now) > EXTRA_BOUND:
            self._violate("s", f"{node.id} has {' and '.join(extra)}, more than it keeps")

    def _check_memory(self, node: TaskManagerNode, life: tuple[str, int]) -> None:
        used, now = self._memory(node.id), self.cluster.loop.time()
        if used <= self.cluster.plan.memory_mb:
            self.over_since.pop(life, None)
        elif now - self.over_since.setdefault(life, now) > MEMORY_BOUND:
            self._violate("t", f"{node.id} uses {used} of {self.cluster.plan.memory_mb} MiB for long")

    def unsettled(self) -> list[str]:
        """Describe what is missing and what is left once all jobs have ended."""
        found: list[str] = []
        for node in self.cluster.nodes if self.cluster.keeps_standbys else []:
            if node.agent is None or not node.agent.alive:
                found += [f"{name} of {node.id} is left" for name in sorted(self._origins(node))]
            else:
                found += self._unsettled_on(node)
        return found

    def _origins(self, node: TaskManagerNode) -> set[str]:
        return {each.process.origin for each in self.cluster.room.standbys.waiting(node.id)}

    def _unsettled_on(self, node: TaskManagerNode) -> list[str]:
        assert node.launcher is not None
        pool, room = node.launcher.pool, self.cluster.room.standbys
        found = [f"{node.id} has {each.standby_id} for job {each.job_id}" for each in pool.standbys() if each.job_id]
        found += [f"{node.id} holds files for {name}" for name, _ in sorted(node.launcher.job_files.held)]
        ids = Counter(name.removeprefix("standby-").rpartition("-")[0] for name in self._origins(node))
        known = Counter(each.standby_id for each in pool.standbys())
        if ids != known:
            found.append(f"{node.id} keeps {sorted(known)}, and there are {sorted(ids.elements())}")
        directories = set(room.disk(node.machine))
        if directories != self._origins(node):
            found.append(f"{node.id} has the directories {sorted(directories)}")
        if pool._back_off:  # it pauses, which may be long
            return found
        present = Counter(each.profile.kind for each in pool.standbys() if each.state is StandbyState.READY)
        for kind, size in room.sizes.items():  # no job has a reserved standby any longer
            largest = max((each.memory_mb for each in pool._asked[kind]), default=0)
            is_short = present[kind] < size and pool.memory_mb + largest <= self.cluster.plan.memory_mb
            if is_short or present[kind] > size:
                found.append(f"{node.id} has {present[kind]} of {size} standby {kind.value}s")
        return found


def _is_a_jobs(standby: SimStandby, node: TaskManagerNode) -> bool:
    """True if a process that has not begun is a job's for its task manager.

    It has confirmed that it was taken, or the task manager process that took it has ended and the next one has found
    the job's name in its record.
    """
    is_found = standby.agent is not node.agent and standby.process.claim is not None
    return standby.stage >= Stage.ANSWERED or is_found

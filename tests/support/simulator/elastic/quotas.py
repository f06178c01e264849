"""Properties (w) and (x) of a simulated cluster: what namespaces use, and what they are guaranteed.

Both look at what really runs: at scripts in their drivers, and at the executors that these drivers' Spark knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from emberkeep.base.configuration.options.access import QUOTA_DRIVERS, QUOTA_SLOTS
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.jobmanager.resources.reclaim_settings import reclaim_terms
from emberkeep.slots.reclaim.terms import Preemption
from tests.support.simulator.cluster import SimCluster
from tests.support.simulator.machines import Process
from tests.support.simulator.network import Conditions
from tests.support.simulator.scripts import DriverWork, Script
from tests.support.simulator.virtual_loop import ScopeState

SLOW_DISK = 1.0  # seconds for a write, from which a slot may take longer to appear than the leader waits for it


@dataclass
class Namespaces:
    """Watches what the jobs of each namespace have.

    A JobManager learns what runs from task managers and drivers. What it cannot know it cannot count: so a namespace
    may have more slots than its quota if the network, a process or a disk was disturbed when it got them. Then its jobs
    give slots back, unless a leader has found them so.
    """

    cluster: SimCluster
    over_since: dict[str, float] = field(default_factory=dict)  # by namespace, while it has more slots than its quota
    _disturbed_at: float = float("-inf")
    _blocked: set[str] = field(default_factory=set)  # nodes that were ever blocked: slots that are left do not count

    def __post_init__(self) -> None:
        configuration = self.cluster.configuration
        self._slots, self._drivers = configuration[QUOTA_SLOTS], configuration[QUOTA_DRIVERS]
        self._terms = reclaim_terms(configuration)
        self._grace = configuration[DRIVER_LEASE]

    @property
    def is_limited(self) -> bool:
        return bool(self._slots or self._drivers)

    @property
    def has_guarantees(self) -> bool:
        return bool(self._terms.guarantees) and self._terms.preemption is not Preemption.NONE

    # --- quotas -------------------------------------------------------------------------------------------------------

    def tick(self, drivers: Iterable[Process]) -> None:
        """Check the quotas. ``drivers``: those that run the newest attempt of their job and are known to the leader."""
        now = self.cluster.loop.time()
        self._blocked.update(self.cluster.blocklist.asked)
        if self._is_disturbed():
            self._disturbed_at = now
        running, slots = Counter[str](), Counter[str]()
        for work in self._works(drivers):
            namespace = work.request.graph.namespace
            if namespace:
                running[namespace] += 1
                slots[namespace] += len(self._working(work))
                self.cluster.history.judged("w", work.key[0])
        for namespace, count in running.items():
            if self._drivers and count > self._drivers:
                self.cluster.history.violate("w", f"{namespace} runs {count} drivers, and may run {self._drivers}")
        for namespace, count in slots.items():
            self._check_slots(namespace, count, now)

    def _check_slots(self, namespace: str, count: int, now: float) -> None:
        if not self._slots or count <= self._slots:
            self.over_since.pop(namespace, None)
        elif namespace not in self.over_since:
            self.over_since[namespace] = now
            if now - self._disturbed_at > self._grace:
                self.cluster.history.violate("w", f"{namespace} uses {count} slots, and may use {self._slots}")
            else:
                self.cluster.history.count("quota exceeded beside a disturbance")

    def _is_disturbed(self) -> bool:
        cluster = self.cluster
        return (
            cluster.network.is_cut
            or cluster.network.conditions != Conditions()
            or any(process.party.scope.state is ScopeState.FROZEN for process in cluster.machines.alive())
            or any(node.record.seconds >= SLOW_DISK for node in cluster.nodes)
            or any(node.agent is None or not node.agent.alive for node in cluster.nodes)
        )

    def above(self, drivers: Iterable[Process]) -> list[str]:
        """Describe the namespaces that have more slots than their quota, and jobs that can give some back.

        What they had when the leader had settled is theirs to keep.
        """
        settled = self.cluster.store.led_since + self.cluster.configuration[HEARTBEAT_TIMEOUT] + self._grace
        givers = {
            work.request.graph.namespace: work.request.graph.name
            for work in self._works(drivers)
            if work.script.decommissions and not work.script.gang and len(self._working(work)) > 1
        }
        return [
            f"namespace {namespace} has more slots than its quota since {since:.1f} s, and {givers[namespace]} has some"
            for namespace, since in self.over_since.items()
            if since > settled and namespace in givers
        ]

    def _works(self, drivers: Iterable[Process]) -> Iterator[DriverWork]:
        for process in drivers:
            work = self.cluster.room.drivers.get(process.pid)
            if work is not None:
                yield work

    def _working(self, work: DriverWork) -> list[Process]:
        """Return the executors of a driver that do not leave."""
        return [
            executor
            for executor_id, executor in work.spark.executors.items()
            if executor_id not in work.spark.cordoned and executor.machine.name not in self._blocked
        ]

    # --- guarantees ---------------------------------------------------------------------------------------------------

    def unmet(self, drivers: Iterable[Process]) -> list[str]:
        """Describe the namespaces with less than their guarantee, while others have borrowed what they can give."""
        if not self.has_guarantees:
            return []
        works = list(self._works(drivers))
        held = Counter[str]()
        for work in works:
            held[work.request.graph.namespace] += len(work.spark.executors)
        missing = []
        for work in works:
            namespace, lacks = work.request.graph.namespace, _lacks(work)
            guarantee = self._terms.guarantee(namespace)
            if min(lacks, guarantee - held[namespace]) > 0 and (giver := self._giver(works, work, held)):
                missing.append(
                    f"namespace {namespace} has {held[namespace]} of the {guarantee} slots that it is guaranteed, "
                    f"{work.request.graph.name} lacks {lacks}, and {giver} has borrowed some"
                )
        for work in works:
            if self._terms.guarantee(work.request.graph.namespace):
                self.cluster.history.judged("x", work.key[0])
        return missing

    def _giver(self, works: list[DriverWork], taker: DriverWork, held: Counter[str]) -> str:
        """Return the name of a job that must give a slot for another one; "" if there is none."""
        for work in works:
            graph = work.request.graph
            borrowed = held[graph.namespace] - self._terms.guarantee(graph.namespace)
            if graph.namespace == taker.request.graph.namespace or borrowed <= 0 or not work.script.dynamic:
                continue
            if work.script.decommissions and len(work.spark.executors) > 1 and _serves(work.script, taker.script):
                return graph.name
        return ""


def _lacks(work: DriverWork) -> int:
    """Return how many executors a job wants and does not have. Those whose load changes want none for certain."""
    if work.spark.application is None or (work.script.dynamic and not work.script.steady):
        return 0
    return work.script.executors - len(work.spark.executors)


def _serves(one: Script, other: Script) -> bool:
    """True if a slot of the one job is large enough for an executor of the other."""
    return one.cores >= other.cores and one.memory_mb >= other.memory_mb and one.gpus >= other.gpus

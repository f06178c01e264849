"""Property (o) of a simulated cluster: what happens to executors that Spark's dynamic allocation removes."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.jobmanager.views.cluster import JobView
from tests.support.simulator.cluster import SimCluster
from tests.support.simulator.elastic.allocation import LONGEST_HAND_OVER
from tests.support.simulator.machines import Process


@dataclass
class Dismissals:
    """Watches the executors that were removed. ``bound``: seconds within which an order reaches a task manager."""

    cluster: SimCluster
    bound: float
    overdue: dict[int, float] = field(default_factory=dict)  # seconds in which each could have been ended, by pid

    def tick(self, seconds: float) -> None:
        """Check that removed executors end. Call every ``seconds`` seconds."""
        for spark in self.cluster.sparks.values():
            driver = spark.process
            if not driver.alive or driver.frozen:
                continue
            for executor in list(spark.executors.values()):
                if spark.has_dismissed(executor) and self._is_reachable(executor, driver):
                    self._count(executor, seconds)

    def _count(self, executor: Process, seconds: float) -> None:
        if executor.key is not None:
            self.cluster.history.judged("o", executor.key.job_id)
        passed = self.overdue.get(executor.pid, 0.0) + seconds
        self.overdue[executor.pid] = passed
        if passed > LONGEST_HAND_OVER + self.bound:
            self.cluster.history.violate("o", f"{executor.name} lives on, though Spark has removed it")
            self.overdue[executor.pid] = float("-inf")

    def _is_reachable(self, executor: Process, driver: Process) -> bool:
        agent = next(node.agent for node in self.cluster.nodes if node.id == executor.owner)
        if agent is None or not agent.alive or agent.frozen or executor.frozen:
            return False
        network = self.cluster.network
        return network.passes(driver.party, agent.party) and network.passes(agent.party, driver.party)

    def look(self, view: JobView) -> None:
        """Check that no removal is reported as a loss, in clusters where no executor is lost."""
        job = next((job for job in self.cluster.jobs if job.job_id == view.job_id), None)
        if job is None or not job.script.dynamic or not self.cluster.plan.only_agents:
            return
        for entry in view.exceptions:
            if entry.kind == "ExecutorLost":
                self.cluster.history.violate("o", f"{job.name} has lost an executor: {entry.message}")

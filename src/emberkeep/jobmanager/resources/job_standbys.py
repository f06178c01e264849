"""Says in heartbeat replies which reserved standbys each task manager keeps. Part of the ResourceManager."""

from __future__ import annotations

from emberkeep.base.actors import Actor, ActorPart, told
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobs.model import JobGraph
from emberkeep.protocol.limits import RESERVED_GRAPHS
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import ReservedStandby
from emberkeep.slots.ledger import DriverNeed
from emberkeep.slots.reserved.choices import RESERVED_STANDBYS, ReservedStandbys


class JobStandbys(ActorPart):
    """Tells task managers in each heartbeat reply which reserved standbys they keep, so that no message can be lost."""

    def __init__(self, owner: Actor, chosen: ReservedStandbys) -> None:
        super().__init__(owner)
        self._chosen = chosen
        self._graphs: dict[JobId, JobGraph] = {}

    @told
    def want(self, graph: JobGraph, need: DriverNeed) -> None:
        """Keep a reserved standby for a job that was added, while the job runs streaming queries."""
        self._graphs[graph.job_id] = graph
        self._chosen.want(graph.job_id, need)

    def forget(self, job_id: JobId) -> None:
        """Forget a job that has ended. Called in a turn of the actor."""
        self._graphs.pop(job_id, None)

    def wanted_at(self, task_manager: TaskManagerId, report: TaskManagerReport) -> tuple[ReservedStandby, ...]:
        """Return what a task manager keeps. Called in a turn of the actor.

        The graph comes with it unless the report lists the job, for a few jobs at a time.
        """
        known = {standby.job_id for standby in report.reserved_standbys}
        jobs = self._chosen.wanted_at(task_manager)
        news = {job_id: self._graphs[job_id] for job_id in [job for job in jobs if job not in known][:RESERVED_GRAPHS]}
        return tuple(
            ReservedStandby(job_id=job_id, graph=news.get(job_id), checkpoints=self._chosen.checkpoints(job_id))
            for job_id in jobs[:RESERVED_STANDBYS]
        )

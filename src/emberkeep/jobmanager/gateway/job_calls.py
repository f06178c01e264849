"""Questions and orders about jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.errors import InvalidInput, RetryLater, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.gateway.seated import Seated
from emberkeep.jobmanager.jobs.admission import check_graph, driver_need, executor_profile
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.jobs.submissions import Disposal
from emberkeep.jobmanager.leader import Leader
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobView, Submission
from emberkeep.jobmanager.views.jobs import AnyJob, with_missing
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.model import JobGraph
from emberkeep.lifecycle.model import ProcedureRequest


class JobCalls(Seated):
    """The part of JobManagerGateway about jobs and their procedures."""

    async def submit(self, graph: JobGraph) -> Submission:
        leader = self._confirmed_leader()
        if problem := self._surroundings.storage.problem:
            raise Unavailable(problem, hint="no job is accepted until then; running jobs continue")
        check_graph(graph)
        await self._check_size(leader, graph)
        return await leader.dispatcher.submissions.submit(graph)

    async def _check_size(self, leader: Leader, graph: JobGraph) -> None:
        """Raise InvalidInput if the job can never run on the task managers that there are.

        A repeated submission gets the answer to the first one, whatever has become of the task managers since. Raises
        RetryLater while some of an earlier leader may not have registered here yet.
        """
        obstacle = await leader.resources.obstacle(driver_need(graph), executor_profile(graph))
        if not obstacle or await leader.dispatcher.submissions.knows(graph):
            return
        term = leader.term
        age = (term.clock.now_ms() - term.started_ms) / 1000
        if term.noted and age < self._configuration[HEARTBEAT_TIMEOUT]:
            raise RetryLater(
                "task managers may not have registered yet with this JobManager, which has just become the "
                f"leader; those that have cannot run job {graph.name!r}: {obstacle}",
                hint="try again in a few seconds",
            )
        raise InvalidInput(
            f"job {graph.name!r} can never run here: {obstacle}",
            field="resources",
            hint="ask for less, or start a larger task manager first",
        )

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        await self._confirmed_leader().dispatcher.cancellations.cancel(job_id, grace=grace)

    async def jobs(self) -> list[JobView]:
        leader = self._leader
        return await _with_missing(leader, await leader.dispatcher.views())

    async def briefs(self) -> list[JobBrief]:
        leader = self._leader
        return await _with_missing(leader, await leader.dispatcher.briefs())

    async def jobs_of(self, job_ids: Sequence[JobId]) -> list[JobView]:
        leader = self._leader
        return await _with_missing(leader, await leader.dispatcher.views_of(job_ids))

    async def job(self, job_id: JobId) -> JobView:
        leader = self._leader
        view = await leader.dispatcher.view(job_id)
        if view.status.is_globally_terminal:
            return view
        missing = await leader.resources.missing([job_id])
        standby = await leader.resources.standby(job_id)
        return msgspec.structs.replace(with_missing(view, missing[job_id]), standby=standby)

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> ProcedureRequest:
        dispatcher = self._confirmed_leader().dispatcher
        if request.procedure.makes_savepoint:
            view = await dispatcher.view(job_id)
            request = with_defaults(request, self._configuration, view.graph, self._surroundings.savepoint_root)
        await dispatcher.requests.request(job_id, request)
        return request

    async def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        return await self._leader.dispatcher.requests.procedure(job_id, trigger_id)

    @contextlib.asynccontextmanager
    async def disposing(self, path: str) -> AsyncIterator[None]:
        disposal = Disposal(path)
        try:
            await self._confirmed_leader().dispatcher.submissions.begin_disposal(disposal)
            yield
        finally:
            disposal.is_over = True


async def _with_missing(leader: Leader, jobs: list[AnyJob]) -> list[AnyJob]:
    """Return the jobs, each with what the cluster cannot provide for it now."""
    waiting = [job.job_id for job in jobs if not job.status.is_globally_terminal]
    missing = await leader.resources.missing(waiting) if waiting else {}
    return [with_missing(job, missing.get(job.job_id, "")) for job in jobs]

"""What the edges can ask of the leader: REST, the web page, metrics and the storage keeper.

It has one method for each question of JobManagerGateway, and passes the question to the actor that can answer it.
Requests that change something are refused while the leadership cannot be confirmed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from emberkeep.base.configuration.options import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, RetryLater, Unavailable
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, Blocked, Blocklist, Place
from emberkeep.jobmanager.jobs.admission import check_graph, driver_need, executor_profile
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.jobs.submissions import Disposal
from emberkeep.jobmanager.leader import Leader, LeaderSeat
from emberkeep.jobmanager.resources.strangers import Strangers
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.views.blocklist import Blocking
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobView, Stranger, Submission, TaskManagerView, UsageView
from emberkeep.jobmanager.views.evacuation import EvacuationCounts, with_evacuations
from emberkeep.jobmanager.views.jobs import AnyJob, with_missing
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobmanager.views.upgrades import UpgradeView, UpgradeWish
from emberkeep.jobs.model import JobGraph
from emberkeep.lifecycle.model import ProcedureRequest


class LeaderGateway:
    """JobManagerGateway of the leader in ``seat``. Raises RetryLater if there is no leader."""

    def __init__(
        self, configuration: Configuration, surroundings: Surroundings, seat: LeaderSeat, strangers: Strangers
    ) -> None:
        self._configuration = configuration
        self._surroundings = surroundings
        self._seat = seat
        self._strangers = strangers
        self._evacuations = EvacuationCounts()

    @property
    def _leader(self) -> Leader:
        return self._seat.leader

    def _confirmed_leader(self) -> Leader:
        """Return the leader. Raises RetryLater while its session with the job store is interrupted."""
        leader = self._seat.leader
        leader.term.authority.check_session()
        return leader

    def epoch(self) -> int:
        return self._seat.epoch

    def started_ms(self) -> int:
        return self._seat.started_ms

    def address(self) -> str:
        return self._surroundings.address

    async def is_confirmed(self) -> bool:
        try:
            return await self._leader.term.authority.confirmed()
        except Conflict as error:
            raise RetryLater("this JobManager no longer leads", hint="try again: another one does") from error

    # --- jobs ---------------------------------------------------------------------------------------------------------

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

    async def upgrade(self, job_id: JobId, wish: UpgradeWish) -> UpgradeView:
        leader = self._confirmed_leader()
        if problem := self._surroundings.storage.problem:
            raise Unavailable(problem, hint="no upgrade is begun until then; running jobs continue")
        check_graph(wish.new)
        await self._check_size(leader, wish.new)
        return await leader.dispatcher.upgrades.begin(job_id, wish)

    async def upgrade_of(self, job_id: JobId) -> UpgradeView:
        return await self._leader.dispatcher.upgrades.view(job_id)

    async def cancel_upgrade(self, job_id: JobId) -> UpgradeView:
        return await self._confirmed_leader().dispatcher.upgrades.cancel(job_id)

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

    # --- task managers ------------------------------------------------------------------------------------------------

    async def task_managers(self) -> list[TaskManagerView]:
        return await self._with_evacuations(await self._leader.resources.views())

    def strangers(self) -> tuple[Stranger, ...]:
        return self._strangers.named()

    async def task_managers_by_node(self) -> dict[str, list[TaskManagerId]]:
        return await self._leader.resources.ids_by_node()

    async def task_manager(self, task_manager_id: TaskManagerId) -> TaskManagerView:
        views = [await self._leader.resources.view(task_manager_id)]
        (view,) = await self._with_evacuations(views, all_of_them=False)
        return view

    async def usage(self, task_manager_id: TaskManagerId | None, *, after_ms: int) -> UsageView:
        return await self._leader.resources.usage(task_manager_id, after_ms)

    async def _with_evacuations(
        self, views: list[TaskManagerView], *, all_of_them: bool = True
    ) -> list[TaskManagerView]:
        if any(view.evacuated for view in views):
            views = with_evacuations(views, await self._leader.dispatcher.views())
        return self._evacuations.counted(views, all_of_them=all_of_them)

    async def stop_task_manager(self, task_manager_id: TaskManagerId, *, drain: float) -> None:
        await self._confirmed_leader().resources.ends.stop(task_manager_id, drain)

    # --- the blocklist ------------------------------------------------------------------------------------------------

    async def blocklist_problem(self) -> str:
        return await self._leader.blocklist.problem()

    async def blocklist(self) -> Blocklist:
        return await self._leader.blocklist.blocklist()

    async def block(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> Blocking:
        blocking = await self._confirmed_leader().blocklist.block(entry, merge=merge, keep_drivers=keep_drivers)
        if entry.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS:
            with contextlib.suppress(EmberkeepError):  # the entry is made in any case
                await self.task_managers()  # counts what has to leave, before it leaves
        return blocking

    async def unblock(self, place: Place) -> None:
        leader = self._confirmed_leader()
        await leader.blocklist.unblock(place)
        leader.resources.suspects.unblocked(place)


async def _with_missing(leader: Leader, jobs: list[AnyJob]) -> list[AnyJob]:
    """Return the jobs, each with what the cluster cannot provide for it now."""
    waiting = [job.job_id for job in jobs if not job.status.is_globally_terminal]
    missing = await leader.resources.missing(waiting) if waiting else {}
    return [with_missing(job, missing.get(job.job_id, "")) for job in jobs]

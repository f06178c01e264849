"""Questions and orders about task managers."""

from __future__ import annotations

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.gateway.seated import Seated
from emberkeep.jobmanager.leader import LeaderSeat
from emberkeep.jobmanager.resources.strangers import Strangers
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.views.cluster import Stranger, TaskManagerView, UsageView
from emberkeep.jobmanager.views.evacuation import EvacuationCounts, with_evacuations


class TaskManagerCalls(Seated):
    """The part of JobManagerGateway about task managers."""

    def __init__(
        self, configuration: Configuration, surroundings: Surroundings, seat: LeaderSeat, strangers: Strangers
    ) -> None:
        super().__init__(configuration, surroundings, seat)
        self._strangers = strangers
        self._evacuations = EvacuationCounts()

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

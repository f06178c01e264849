"""Orders task managers to stop. Part of the ResourceManager."""

from __future__ import annotations

from functools import partial

from emberkeep.base.actors import Actor
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.resources.registrations import Registrations
from emberkeep.jobmanager.term import Term
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.messages.task_managers import StopTaskManager
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.restrictions import Restrictions


class TaskManagerEnds:
    """Orders single task managers to stop. ``actor`` owns ``registrations`` and ``restrictions``."""

    def __init__(
        self,
        actor: Actor,
        registrations: Registrations,
        restrictions: Restrictions,
        rpc: RpcClient,
        term: Term,
        *,
        timeout: float,
    ) -> None:
        self._actor = actor
        self._registrations = registrations
        self._restrictions = restrictions
        self._rpc = rpc
        self._term = term
        self._timeout = timeout

    async def stop(self, task_manager: TaskManagerId, drain: float) -> None:
        """Order a task manager to stop permanently. The next report of the task manager says that it is leaving.

        Raises Absent, RetryLater (for instance, the task manager was restarted in between), UnknownOutcome.
        """
        try:
            if not await self._term.authority.confirmed():
                self._term.authority.check()
        except Conflict as error:
            raise RetryLater(f"this JobManager is no longer the leader: {error.message}", hint="try again") from error
        info = (await self._actor.ask(partial(self._registrations.view, task_manager))).info
        request = StopTaskManager(
            epoch=self._term.epoch, instance=info.instance, drain=drain, lineage=self._term.lineage
        )
        try:
            await self._rpc.call(info.address, request, Ack, timeout=self._timeout)
        except Conflict as error:
            raise RetryLater(f"cannot end task manager {task_manager}: {error}", hint="try again") from error

    async def retire(self, task_manager: TaskManagerId) -> bool:
        """Order an idle task manager to stop permanently, and place nothing new there.

        Return False if it is no longer idle.

        Raises RetryLater (it has certainly not received the order and is used as before), Absent, UnknownOutcome (also
        if it has certainly not received this order, but perhaps an earlier one).
        """
        is_retiring = await self._actor.ask(partial(self._restrictions.is_retiring, task_manager))
        if not await self._actor.ask(partial(self._restrictions.retire, task_manager)):
            return False
        try:
            await self.stop(task_manager, 0.0)
        except (Absent, UnknownOutcome):
            raise
        except EmberkeepError as error:
            if is_retiring:
                raise UnknownOutcome(f"task manager {task_manager} may end already: {error}") from error
            await self._actor.ask(partial(self._restrictions.recall, task_manager))
            raise RetryLater(f"task manager {task_manager} did not receive the request to end: {error}") from error
        return True

"""Questions and orders about the blocklist."""

from __future__ import annotations

import contextlib

from emberkeep.base.errors import EmberkeepError
from emberkeep.blocklist.model import BlockAction, Blocked, Blocklist, Place
from emberkeep.jobmanager.gateway.task_manager_calls import TaskManagerCalls
from emberkeep.jobmanager.views.blocklist import Blocking


class BlocklistCalls(TaskManagerCalls):
    """BlocklistGateway. A block that evacuates counts what the task managers have."""

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

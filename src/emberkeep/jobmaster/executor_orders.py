"""Orders of a JobMaster to task managers: start an executor in a slot, release a slot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emberkeep.base.actors import Actor
from emberkeep.base.ids import AllocationId
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.ports import Application
from emberkeep.jobmaster.task_manager_calls import TaskManagerCalls, start_request
from emberkeep.protocol.messages.executors import ReleaseSlot, StartExecutor
from emberkeep.slots.pool import events as ev
from emberkeep.slots.pool.held_slot import ExecutorState
from emberkeep.slots.pool.machine import SlotPool


class ExecutorOrders:
    """Repeats each order until it is carried out or no longer needed. Belongs to ``owner`` and runs in its turns.

    ``decide`` passes the result to the slot pool.
    """

    def __init__(
        self,
        owner: Actor,
        identity: Identity,
        pool: SlotPool,
        calls: TaskManagerCalls,
        decide: Callable[[ev.PoolEvent], object],
    ) -> None:
        self._owner = owner
        self._identity = identity
        self._pool = pool
        self._calls = calls
        self._decide = decide

    def start_executor(self, application: Application, allocation_id: AllocationId) -> None:
        """Start an executor of ``application`` in a slot that the pool holds."""
        slot = self._pool.state.held[allocation_id]
        request = start_request(self._identity, application, slot)
        self._owner.start_effect("start-executor", self._start(slot.task_manager.address, request), deadline=None)

    async def _start(self, address: str, request: StartExecutor) -> None:
        def still_wanted() -> bool:
            slot = self._pool.state.held.get(request.allocation_id)
            return (
                slot is not None
                and slot.executor.id == request.executor_id
                and slot.task_manager.address == address
                and slot.executor.state is ExecutorState.STARTING
            )

        problem = await self._calls.start(address, request, still_wanted)
        if problem is not None:
            self._owner.tell(partial(self._decide, problem))

    def release(self, slot: ev.ReleaseSlotAt) -> None:
        """Return a slot to its task manager."""
        self._owner.start_effect("release", self._release(slot), deadline=None)

    async def _release(self, slot: ev.ReleaseSlotAt) -> None:
        own = self._identity
        request = ReleaseSlot(
            job_id=own.job_id, attempt=own.attempt, allocation_id=slot.allocation_id, stopped=slot.stopped
        )
        await self._calls.release(slot.address, request)
        self._owner.tell(partial(self._decide, ev.ReleaseDone(slot.allocation_id)))

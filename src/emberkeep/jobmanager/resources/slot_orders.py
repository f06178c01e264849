"""Orders task managers to allocate the slots that the SlotManager has decided on. Part of the ResourceManager."""

from __future__ import annotations

from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.errors import EmberkeepError, UnknownOutcome
from emberkeep.base.ids import AllocationId
from emberkeep.jobmanager.bounded_calls import BoundedCalls
from emberkeep.jobmanager.term import Term
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.messages.task_managers import AllocateSlot
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.slot_manager import Allotted, SlotManager

CALLS_AT_ONCE = 128

log = structlog.get_logger(__name__)


class SlotOrders:
    """Sends the orders, as effects of ``actor``, which owns ``slots``.

    A slot that was certainly not allocated is withdrawn.
    """

    def __init__(self, actor: Actor, slots: SlotManager, rpc: RpcClient, term: Term, *, timeout: float) -> None:
        self._actor = actor
        self._slots = slots
        self._rpc = rpc
        self._term = term
        self._timeout = timeout
        self._calls = BoundedCalls(actor, CALLS_AT_ONCE)

    def submit(self, allotted: Allotted) -> None:
        """Order the allocation when there is room for another call."""
        self._calls.submit(("allocate", allotted.allocation.id), partial(self._allocate, allotted))

    async def _allocate(self, allotted: Allotted) -> None:
        allocation = allotted.allocation
        if not await self._term.authority.confirmed():
            self._withdraw(allocation.id)
            return
        if not self._slots.is_pending(allocation.id):
            return  # it expired while this call waited
        request = AllocateSlot(
            epoch=self._term.epoch,
            allocation_id=allocation.id,
            job_id=allocation.job_id,
            attempt=allocation.attempt,
            profile=allocation.profile,
            job_master=allocation.job_master,
            lineage=self._term.lineage,
        )
        try:
            await self._rpc.call(allotted.info.address, request, Ack, timeout=self._timeout)
        except UnknownOutcome as error:
            # The slot may be allocated: the next report, or the timeout of the pending slot, decides.
            log.info(
                "no reply to an allocation, the task manager's next report decides",
                task_manager=allotted.info.id,
                reason=str(error),
            )
        except EmberkeepError as error:
            log.info("task manager did not take an allocation", task_manager=allotted.info.id, reason=str(error))
            self._withdraw(allocation.id)

    def _withdraw(self, allocation_id: AllocationId) -> None:
        self._actor.tell(lambda: self._slots.take_refusal(allocation_id, self._term.clock.now()))

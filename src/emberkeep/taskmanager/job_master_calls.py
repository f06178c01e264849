"""Calls from a task manager to JobMasters: slot offers and changes to executors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput
from emberkeep.protocol.messages.executors import ExecutorChanged, OfferSlots, OfferSlotsReply
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.table.slot import Slot
from emberkeep.taskmanager.reports import executor_report

log = structlog.get_logger(__name__)

OFFER_PAUSE = 0.2  # seconds between two tries to offer slots


class JobMasterCalls:
    """Calls JobMasters. ``timeout``: seconds to wait for a reply."""

    def __init__(self, rpc: RpcClient, timeout: float) -> None:
        self._rpc = rpc
        self._timeout = timeout

    async def offer(self, info: TaskManagerInfo, slots: Sequence[Slot]) -> OfferSlotsReply | None:
        """Offer slots of one attempt, with the executors in them.

        If no reply came, return None after OFFER_PAUSE seconds. Raises Conflict if the receiver refuses all these slots
        permanently.
        """
        first = slots[0].allocation
        reports = [executor_report(slot) for slot in slots]
        offer = OfferSlots(
            job_id=first.job_id,
            attempt=first.attempt,
            task_manager=info,
            slots=tuple(slot.allocation for slot in slots),
            executors=tuple(report for report in reports if report is not None),
        )
        try:
            return await self._rpc.call(first.job_master, offer, OfferSlotsReply, timeout=self._timeout)
        except (Conflict, Absent, InvalidInput, Fatal) as error:
            raise Conflict(error.message, hint=error.hint) from error
        except EmberkeepError:
            await asyncio.sleep(OFFER_PAUSE)
            return None

    async def tell(self, info: TaskManagerInfo, slot: Slot) -> None:
        """Report the state of a slot's executor to its JobMaster once.

        Do not repeat a report that fails: the next reply to a heartbeat of the JobMaster contains the same state. Do
        nothing if there is nothing to report about the slot.
        """
        report = executor_report(slot)
        if report is None:
            return
        allocation = slot.allocation
        change = ExecutorChanged(
            job_id=allocation.job_id, attempt=allocation.attempt, task_manager=info.id, executor=report
        )
        try:
            await self._rpc.call(allocation.job_master, change, Ack, timeout=self._timeout)
        except EmberkeepError as error:
            log.debug(
                "cannot report an executor to its JobMaster; the reply to its next heartbeat has the same state",
                job=allocation.job_id,
                reason=str(error),
            )

"""Offers of slots to the JobMasters for which they were reserved, repeated until they are answered."""

from __future__ import annotations

from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.protocol.messages.executors import OfferSlotsReply
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.table import events as ev
from emberkeep.taskmanager.job_master_calls import JobMasterCalls
from emberkeep.taskmanager.kept_table import KeptTable

log = structlog.get_logger(__name__)


class SlotOffers:
    """Makes the offers, at most one at a time to each attempt. Belongs to ``owner`` and runs in its turns.

    ``info``: this task manager, as each offer names it.
    """

    def __init__(self, owner: Actor, info: TaskManagerInfo, kept: KeptTable, calls: JobMasterCalls) -> None:
        self.info = info
        self._owner = owner
        self._kept = kept
        self._calls = calls
        self._under_way: set[tuple[JobId, int]] = set()

    def offer_all(self) -> None:
        """Offer all slots that wait for acceptance, unless an offer to their attempt is under way."""
        for attempt in self._kept.table.state.offers():
            if attempt not in self._under_way:
                self._under_way.add(attempt)
                self._owner.start_effect("offer", self._offer(attempt), deadline=None)

    async def _offer(self, attempt: tuple[JobId, int]) -> None:
        """Offer the slots that the attempt has not accepted, once the record that lists them is on disk."""
        await self._kept.journal.settled()
        slots = self._kept.table.state.offers().get(attempt, ())
        offered = tuple(slot.allocation.id for slot in slots)
        try:
            answer = await self._calls.offer(self.info, slots) if slots else None
        except Conflict as error:
            log.info("slots were refused", job=attempt[0], attempt=attempt[1], reason=str(error))
            self._owner.tell(partial(self._refused, attempt, offered))
            return
        self._owner.tell(partial(self._returned, attempt, offered, answer))

    def _refused(self, attempt: tuple[JobId, int], offered: tuple[AllocationId, ...]) -> None:
        """Note that an offer was refused as a whole, perhaps by a process that is not the attempt's JobMaster."""
        self._under_way.discard(attempt)
        self._kept.decide(ev.OfferRefused(offered))

    def _returned(
        self, attempt: tuple[JobId, int], offered: tuple[AllocationId, ...], answer: OfferSlotsReply | None
    ) -> None:
        """Note the result of an offer. ``answer`` None: no reply, so the offer is repeated."""
        self._under_way.discard(attempt)
        if answer is None:
            self.offer_all()
            return
        if answer.accepted:
            self._kept.instance_known()
        self._kept.decide(ev.OfferAnswered(offered, answer.accepted, answer.later))

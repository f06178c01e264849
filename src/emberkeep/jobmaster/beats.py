"""Heartbeats of a JobMaster to the task managers that hold its slots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, InstanceId
from emberkeep.jobmaster.executor_reports import found_executor
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.task_manager_calls import TaskManagerCalls
from emberkeep.protocol.messages.executors import JobMasterBeat, SlotsReply
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.pool.events import BeatAnswered
from emberkeep.slots.pool.machine import SlotPool

log = structlog.get_logger(__name__)


class Beats:
    """Sends heartbeats, one at a time to each task manager. Belongs to ``owner`` and runs in its turns.

    ``answered`` takes each reply. ``refused`` is called if a task manager refuses this attempt.
    """

    def __init__(
        self,
        owner: Actor,
        identity: Identity,
        pool: SlotPool,
        calls: TaskManagerCalls,
        answered: Callable[[BeatAnswered], object],
        refused: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._identity = identity
        self._pool = pool
        self._calls = calls
        self._answered = answered
        self._refused = refused
        self._under_way: set[InstanceId] = set()
        self._again: set[InstanceId] = set()  # of these, task managers that need another heartbeat afterwards
        self._stopped = False

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._stopped = True

    def send_now(self) -> None:
        """Send a heartbeat to each task manager, because the pool has changed.

        If one is under way, send another when it has returned.
        """
        self._again = set(self._under_way)
        self.send_due()

    def send_due(self) -> None:
        """Send a heartbeat to each task manager to which none is under way."""
        if self._stopped:
            return
        for info, allocations in self._pool.state.to_beat():
            if info.instance not in self._under_way:
                self._under_way.add(info.instance)
                self._again.discard(info.instance)
                decommissioned = self._pool.state.decommissioned(allocations)
                self._owner.start_effect("beat", self._send(info, allocations, decommissioned), deadline=None)

    async def _send(
        self,
        info: TaskManagerInfo,
        allocations: tuple[AllocationId, ...],
        decommissioned: tuple[AllocationId, ...],
    ) -> None:
        own = self._identity
        beat = JobMasterBeat(
            job_id=own.job_id, attempt=own.attempt, allocations=allocations, decommissioned=decommissioned
        )
        reply: SlotsReply | None = None
        try:
            reply = await self._calls.beat(info.address, beat)
        except Conflict as error:
            # Only the JobManager can decide whether this attempt is over: report to it now.
            log.warning("a task manager refuses this attempt", task_manager=info.id, reason=str(error))
            self._refused()
        self._owner.tell(partial(self._returned, info, allocations, reply))

    def _returned(
        self, task_manager: TaskManagerInfo, asked_for: tuple[AllocationId, ...], reply: SlotsReply | None
    ) -> None:
        """Note the result of a heartbeat. ``reply`` is None if there was no reply or the heartbeat was refused."""
        self._under_way.discard(task_manager.instance)
        if reply is None:
            return
        if task_manager.instance in self._again:
            self.send_due()
        executors = tuple(found_executor(report) for report in reply.executors)
        self._answered(BeatAnswered(task_manager.id, reply.instance, asked_for, reply.allocations, executors))

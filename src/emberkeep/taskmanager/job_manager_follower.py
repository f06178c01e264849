"""What a task manager reports to JobManagers, and which of them it follows."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.protocol.limits import LEFT_JOBS, SEEN_JOBS
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import (
    AttemptKey,
    ReservedStandby,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.table import events as ev
from emberkeep.taskmanager.job_manager_link import JobManagerReply
from emberkeep.taskmanager.kept_table import KeptTable
from emberkeep.taskmanager.ports import NodeUsage
from emberkeep.taskmanager.reports import task_manager_report


class JobManagerFollower(ActorPart):
    """LinkOwner of a task manager.

    ``reserve``: see ``Launcher.reserve_standbys``. ``adopts_leader``: follow any job store until this process has
    registered.
    """

    def __init__(
        self,
        owner: Actor,
        kept: KeptTable,
        usage: Callable[[], NodeUsage],
        reserve: Callable[[tuple[ReservedStandby, ...]], None],
        *,
        adopts_leader: bool,
    ) -> None:
        super().__init__(owner)
        self.adopted = 0  # processes of the previous task manager process that continue to run
        self._kept = kept
        self._usage = usage
        self._reserve = reserve
        self._adopts_leader = adopts_leader
        self._sequence = 0

    @property
    def holds_nothing(self) -> bool:
        """See LinkOwner."""
        return self._kept.table.state.is_empty

    @property
    def _follows_any(self) -> bool:
        """True if this task manager accepts a JobManager with another job store.

        It does if it holds nothing that could be lost, or if the ADOPT_LEADER option allows it.
        """
        return self._kept.table.state.holds_nothing or self._adopts_leader

    def followed_lineage(self) -> str:
        """See LinkOwner."""
        return "" if self._follows_any else self._kept.table.state.fences.lineage

    def followed_epoch(self) -> int:
        """See LinkOwner."""
        return 0 if self._follows_any else self._kept.table.state.fences.epoch

    def attempts_seen(self) -> tuple[AttemptKey, ...]:
        """See LinkOwner."""
        newest = self._kept.table.state.fences.records()[-SEEN_JOBS:]
        return tuple(AttemptKey(job_id=fence.job_id, attempt=fence.highest) for fence in newest)

    @asked
    def take_report(self) -> TaskManagerReport:
        """See LinkOwner."""
        self._sequence += 1
        table, outcomes = self._kept.table, self._kept.outcomes
        left = table.name_left(LEFT_JOBS)
        return task_manager_report(table.state, left, outcomes, self._usage_now(), self._sequence, self.adopted)

    def _usage_now(self) -> NodeUsage:
        """Return what the node uses. Nothing can be started over a disk without the record, however much is free."""
        usage = self._usage()
        return msgspec.structs.replace(usage, disk_free_mb=0) if self._kept.journal.problem else usage

    @asked
    def take_reply(self, reply: JobManagerReply) -> None:
        """See LinkOwner."""
        if isinstance(reply, TaskManagerRegistered) and self._follows_any:
            self._kept.decide(ev.StoreFollowed(reply.epoch, reply.lineage))
        try:
            self._kept.decide(ev.EpochSeen(reply.epoch, reply.lineage))
        except Conflict as error:
            raise RetryLater(error.message, hint=error.hint) from None
        if isinstance(reply, TaskManagerRegistered):
            self._adopts_leader = False
            self._kept.instance_known()
            self._kept.keep()
        if isinstance(reply, TaskManagerHeartbeatReply):
            for key in reply.acknowledged:
                self._kept.decide(ev.DriverAcknowledged(key.job_id, key.attempt))
            for key in reply.stale:
                self._kept.decide(ev.AttemptsOver(key.job_id, key.attempt))
            if reply.ended:
                self._kept.decide(ev.JobsEnded(reply.ended))
            self._reserve(reply.reserved_standbys)

"""The registered task managers, and the time of the last contact with each. Part of the SlotManager.

A silent task manager gets nothing new, but what jobs hold there presumably continues. It is *away*: what it last
reported stays in the accounts until the jobs release it, or until the task manager has been away for too long. After a
restart, its first report lists what the new instance has taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.slots.job_accounts import JobAccounts
from emberkeep.slots.ledger import HeldReport, Member
from emberkeep.slots.locality import StateIndex
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.restrictions import Restrictions
from emberkeep.slots.shelves import Shelves


class RemovedTaskManager(NamedTuple):
    """A task manager instance that is no longer registered, and the jobs that held or awaited slots there."""

    info: TaskManagerInfo
    holders: tuple[JobId, ...]


@dataclass(frozen=True)
class Lapsed:
    """The task managers whose state a timeout has changed.

    ``lost``: removed. ``away``: silent for too long while jobs hold something there.
    """

    lost: tuple[RemovedTaskManager, ...]
    away: tuple[TaskManagerInfo, ...] = ()


@dataclass(frozen=True)
class SilenceLimits:
    """Seconds of silence after which a task manager counts as away or lost.

    ``lost_after``: from then on it is away, or lost if no job holds anything there. ``orphan_timeout``: from then on it
    is lost in any case.
    """

    lost_after: float
    orphan_timeout: float


class RegisteredTaskManagers:
    """Registers and removes task managers, at most one instance per id. All times are monotonic seconds, passed in."""

    def __init__(
        self,
        members: dict[TaskManagerId, Member],
        shelves: Shelves,
        state: StateIndex,
        jobs: JobAccounts,
        restrictions: Restrictions,
        limits: SilenceLimits,
        most: int,
    ) -> None:
        """``most``: task managers that may be registered at a time, unless jobs hold something on further ones."""
        self._members = members
        self._shelves = shelves
        self._state = state
        self._jobs = jobs
        self._restrictions = restrictions
        self._limits = limits
        self._most = most
        self._heard: dict[Member, float] = {}  # last contact with each that is not away, oldest first
        self._away: dict[Member, float] = {}  # last contact with each
        self._ordinals = 0

    def all(self) -> list[Member]:
        """Return all registered task managers, by id."""
        return [self._members[key] for key in sorted(self._members)]

    def get(self, task_manager: TaskManagerId) -> Member | None:
        return self._members.get(task_manager)

    def is_away(self, task_manager: TaskManagerId) -> bool:
        """True if a task manager is registered and silent for too long."""
        member = self._members.get(task_manager)
        return member is not None and member.away

    def register(self, info: TaskManagerInfo, report: HeldReport, now: float) -> RemovedTaskManager | None:
        """Take in a task manager with its first report.

        Returns the previous instance that it replaces, if any, with the jobs that held slots there and have none left
        in this report. Raises Conflict, see ``_check_successor``, and RetryLater if there are too many.
        """
        replaced = None
        member = self._members.get(info.id)
        if member is not None and member.info.instance != info.instance:
            self._check_successor(member, info)
            kept = {allocation.job_id for allocation in report.allocations}
            holders = self._remove(member).holders
            replaced = RemovedTaskManager(member.info, tuple(job_id for job_id in holders if job_id not in kept))
            member = None
        if member is None:
            if replaced is None:
                self._check_room(report)
            self._ordinals += 1
            member = Member(info=info, ordinal=self._ordinals, block=self._restrictions.block_of(info))
            self._members[info.id] = member
            self._shelves.add(member)
        self._take(member, report, now)
        return replaced

    def _check_room(self, report: HeldReport) -> None:
        """Raise RetryLater if there are too many task managers for one more on which no job holds anything.

        After a change of leader, an idle one may register before one with work, which must not be lost.
        """
        if len(self._members) >= self._most and not report.allocations and not report.drivers:
            raise RetryLater(
                f"{len(self._members)} task managers are registered, the most that this cluster accepts",
                hint="stop some, or raise the JobManager's jobmanager.max-task-managers",
            )

    @staticmethod
    def _check_successor(member: Member, new: TaskManagerInfo) -> None:
        """Raise Conflict if a process claims the id of a registered task manager that has not provably ended.

        The proof is the old instance's name: only later processes in the same working directory know it. No proof is
        needed while the registered task manager is away.
        """
        old = member.info
        if member.away or old.instance in new.predecessors:
            return
        if new.instance in old.predecessors:
            raise _outdated(old.id)
        raise Conflict(
            f"the id of task manager {old.id} is in use by {_process(old)}, so {_process(new)} cannot register with it",
            hint="give each task manager its own taskmanager.resource-id and working directory",
        )

    def take_report(self, task_manager: TaskManagerId, instance: InstanceId, report: HeldReport, now: float) -> bool:
        """Take a changed report; ignore a late one. Return False if the task manager is unknown and must register."""
        member = self._instance(task_manager, instance)
        if member is None:
            return False
        self._take(member, report, now)
        return True

    def take_heartbeat(self, task_manager: TaskManagerId, instance: InstanceId, sequence: int, now: float) -> bool:
        """Take a heartbeat whose report has not changed, in constant time.

        Return False if the task manager is unknown and must register.
        """
        member = self._instance(task_manager, instance)
        if member is None:
            return False
        member.sequence = max(member.sequence, sequence)
        self._note_contact(member, now)
        return True

    def take_local_state(self, task_manager: TaskManagerId, sizes: Mapping[JobId, int]) -> None:
        """Note the bytes of local state on a registered task manager, by job."""
        self._state.put(self._members[task_manager], sizes)

    def remove(self, task_manager: TaskManagerId) -> RemovedTaskManager:
        """Remove a task manager that has shut down."""
        return self._remove(self._members[task_manager])

    def expire(self, now: float, hears_since: float | None) -> Lapsed:
        """Remove task managers that have been silent for too long, or mark them away while jobs hold something there.

        ``hears_since``: time from which the orphan timeout measures silence; None while silence proves nothing.
        """
        lost, away = [], []
        while self._heard:
            member, heard_at = next(iter(self._heard.items()))
            if now - heard_at < self._limits.lost_after:
                break
            if self._jobs.use(member):
                self._send_away(member, heard_at)
                away.append(member.info)
            else:
                lost.append(self._remove(member))
        for member, heard_at in list(self._away.items()):
            silent = 0.0 if hears_since is None else now - max(heard_at, hears_since)
            if silent >= self._limits.orphan_timeout or not self._jobs.use(member):
                lost.append(self._remove(member))
        gone = {each.info.instance for each in lost}
        return Lapsed(tuple(lost), tuple(info for info in away if info.instance not in gone))

    def _instance(self, task_manager: TaskManagerId, instance: InstanceId) -> Member | None:
        member = self._members.get(task_manager)
        if member is not None and member.info.instance != instance:
            raise _outdated(task_manager)
        return member

    def _note_contact(self, member: Member, now: float) -> None:
        self._heard.pop(member, None)
        self._heard[member] = now
        if self._away.pop(member, None) is not None:
            self._shelves.take_back(member)

    def _take(self, member: Member, report: HeldReport, now: float) -> None:
        self._note_contact(member, now)
        if report.sequence > member.sequence:
            member.sequence = report.sequence
            self._jobs.take_report(member, report, now)
            self._shelves.update(member)

    def _send_away(self, member: Member, heard_at: float) -> None:
        """Mark a silent task manager away: allocate nothing new there, keep what jobs hold."""
        self._jobs.withdraw_all_on(member)
        self._restrictions.forget(member)
        self._shelves.send_away(member)
        del self._heard[member]
        self._away[member] = heard_at

    def _remove(self, member: Member) -> RemovedTaskManager:
        holders = self._jobs.drop_all_on(member)
        self._restrictions.forget(member)
        self._shelves.remove(member)
        self._heard.pop(member, None)
        self._away.pop(member, None)
        self._state.put(member, {})
        del self._members[member.info.id]
        return RemovedTaskManager(member.info, holders)


def _outdated(task_manager: TaskManagerId) -> Conflict:
    return Conflict(f"task manager {task_manager} has been restarted, and this process is its previous instance")


def _process(info: TaskManagerInfo) -> str:
    return f"pid {info.pid} on {info.host} ({info.address})"

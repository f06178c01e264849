"""Takes the registrations and heartbeats of task managers. Part of the ResourceManager.

Each report updates the SlotManager. What changes for jobs is announced to the Dispatcher.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import structlog

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.resources.announcer import Announcer
from emberkeep.jobmanager.resources.job_standbys import JobStandbys
from emberkeep.jobmanager.resources.lost_instances import LostInstances
from emberkeep.jobmanager.resources.registrations import Registration, Registrations
from emberkeep.jobmanager.resources.suspected_nodes import SuspectedNodes
from emberkeep.jobmanager.resources.usage_keeper import usage_view
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.cluster import UsageView
from emberkeep.protocol.limits import LEFT_JOBS, LOCAL_STATE_JOBS
from emberkeep.protocol.messages.task_manager_reports import ProcessState, TaskManagerReport
from emberkeep.protocol.messages.task_managers import (
    AttemptKey,
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
)
from emberkeep.slots.ledger import DriverUse, HeldReport
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.registered_task_managers import Lapsed, RemovedTaskManager
from emberkeep.slots.reserved.choices import RESERVED_STANDBYS
from emberkeep.slots.slot_manager import SlotManager
from emberkeep.usage.histories import UsageHistories
from emberkeep.usage.history import Reading

_GONE = 1000  # task managers whose removal is remembered

log = structlog.get_logger(__name__)


class TaskManagerReports:
    """Takes reports. A task manager is in ``registrations`` exactly while the SlotManager has registered it.

    All methods are called in turns of the ResourceManager.
    """

    def __init__(
        self,
        slots: SlotManager,
        standbys: JobStandbys,
        suspects: SuspectedNodes,
        announcer: Announcer,
        term: Term,
        usage: UsageHistories,
    ) -> None:
        self.registrations = Registrations(slots.task_managers, term.started_ms)
        self.lost = LostInstances()
        self._gone: deque[TaskManagerId] = deque(maxlen=_GONE)
        self._slots = slots
        self._standbys = standbys
        self._suspects = suspects
        self._announcer = announcer
        self._term = term
        self._usage = usage
        self._clock = term.clock

    def register(self, request: RegisterTaskManager) -> None:
        """Register a task manager, or take its newer instance. Raises Conflict if another process has this id."""
        info, report = request.info, request.report
        replaced = self._slots.task_managers.register(info, _held(report), self._clock.now())
        self._term.hearing.heard(info.id, self._clock.now())
        if replaced is not None:
            self._succeed(info, report, replaced)
        before = self.registrations.get(info.id)
        if before is None:
            log.info("task manager registered", task_manager=info.id, address=info.address, slots=info.slots)
            if info.instance not in self._term.noted or info.id in self._gone:  # else an earlier leader has noted it
                slots = "1 slot" if info.slots == 1 else f"{info.slots} slots"
                self._note(What.TASK_MANAGER_REGISTERED, info, f"registered with {slots}")
        self._announcer.listener.attempts_seen((*request.attempts, *_attempts_of(report)))
        self._suspects.judge(lambda faults, _: faults.stands(info))
        self.lost.returned(info.instance)
        if before is None or report.sequence > before.report.sequence:
            self.registrations.put(info, report, self._clock.now_ms())
            self._slots.task_managers.take_local_state(info.id, _sizes(report))
            self._take_disk(info, report)
            self._note_leaving(info.id, report)
            self._announcer.drivers(info, before.report.drivers if before else (), report.drivers)

    def _succeed(self, info: TaskManagerInfo, report: TaskManagerReport, replaced: RemovedTaskManager) -> None:
        """Replace the previous instance of a task manager that was restarted.

        Work that the new instance has taken over continues. Only jobs without a slot in its report learn of a loss.
        Drivers that it does not list have ended, if it has searched for those of the previous instance.
        """
        log.info("task manager was restarted", task_manager=info.id, host=info.host)
        self._note(What.TASK_MANAGER_REGISTERED, info, "was restarted")
        before = self.registrations.get(info.id)
        if before is not None and before.info.instance in info.predecessors:
            self._announcer.vanished(before.info, before.report.drivers, report.drivers)
        self._note_lost([replaced])

    def heartbeat(self, request: TaskManagerHeartbeat) -> TaskManagerHeartbeatReply:
        """Take a heartbeat. Raises Conflict for a process whose id now belongs to another process."""
        registration = self.registrations.get(request.id)
        if registration is None:
            return TaskManagerHeartbeatReply(epoch=self._term.epoch, known=False, lineage=self._term.lineage)
        self._term.hearing.heard(request.id, self._clock.now())
        report, before = request.report, registration.report
        was_away = self._slots.task_managers.is_away(request.id)
        is_late = report.sequence <= before.sequence
        self._take(registration, request, is_late=is_late)
        if not is_late:
            usage = self._usage.note(request.id, self._reading(registration), self._clock.now_ms())
            registration.usage_since_ms, registration.disk_low_since_ms = usage.since_ms, usage.disk_low_since_ms
            self._take_disk(registration.info, report)
        self._note_leaving(request.id, report)
        if was_away:
            log.info("received a heartbeat again", task_manager=request.id, address=registration.info.address)
            self._note(What.TASK_MANAGER_BACK, registration.info, "sends heartbeats again")
        if was_away or registration.report.drivers != before.drivers:
            self._announcer.drivers(registration.info, before.drivers, registration.report.drivers)
            new = [driver for driver in registration.report.drivers if driver not in before.drivers]
            self._suspects.judge(lambda faults, now: faults.drivers_ended(registration.info, new, now))
        if not is_late and not registration.complete:
            registration.complete = True
            self._announcer.listener.drivers_complete(registration.info, report.drivers)
        verdict = self._verdict(registration)
        if report.leaving and not is_late and not registration.keys:
            self._take_leave(registration.info)
        return verdict

    def _take(self, registration: Registration, request: TaskManagerHeartbeat, *, is_late: bool) -> None:
        """Update the SlotManager and the registration; in constant time if nothing has changed there."""
        report, before, task_managers = request.report, registration.report, self._slots.task_managers
        now, now_ms = self._clock.now(), self._clock.now_ms()
        if is_late or _shows_the_same(report, before):
            task_managers.take_heartbeat(request.id, request.instance, report.sequence, now)
            if not is_late:
                registration.report = report
            registration.heard_ms = now_ms
        else:
            task_managers.take_report(request.id, request.instance, _held(report), now)
            registration.take(report, now_ms)
        if not is_late and report.local_state != before.local_state:
            task_managers.take_local_state(request.id, _sizes(report))

    def _reading(self, registration: Registration) -> Reading:
        report, slots = registration.report, registration.info.slots
        member = self._slots.task_managers.get(registration.info.id)
        return Reading(
            cpu_percent=report.cpu_percent,
            memory_used_mb=report.memory_used_mb,
            disk_free_mb=report.disk_free_mb,
            slots=slots,
            slots_taken=0 if member is None else slots - max(0, member.free_slots),
        )

    def note_slots(self) -> int:
        """Note for the history how many slots there are, and how many are taken. Return how many there are."""
        members = self._slots.task_managers.all()
        slots = sum(member.info.slots for member in members)
        # as the pages count: what silent task managers have free cannot be given to anyone
        free = sum(max(0, member.free_slots) for member in members if not member.away)
        self._usage.note_slots(slots, slots - free, self._clock.now_ms())
        return slots

    def usage(self, task_manager: TaskManagerId | None, after_ms: int) -> UsageView:
        """Return what a task manager's history, or that of all slots, has after ``after_ms``. Raises Absent."""
        report = None if task_manager is None else self.registrations.view(task_manager).report
        history = self._usage.cluster if task_manager is None else self._usage.of(task_manager)
        return usage_view(history, self._usage.step_ms, after_ms, report)

    def _take_disk(self, info: TaskManagerInfo, report: TaskManagerReport) -> None:
        if not self._slots.restrictions.take_disk(info.id, report.disk_free_mb, report.disk_total_mb):
            return
        free = f"{report.disk_free_mb} MiB of its disk's {report.disk_total_mb} MiB are free"
        member = self._slots.task_managers.get(info.id)
        if member is not None and member.disk_full:
            why = f"only {free}" if report.disk_free_mb else "nothing can be written to its disk"
            log.warning(
                "cannot use the disk of a task manager, allocating nothing new there", task_manager=info.id, reason=why
            )
            self._note(What.DISK_FULL, info, f"gets nothing new: {why}")
        else:
            self._note(What.DISK_HAS_ROOM, info, f"gets new work again: {free}")

    def _note_leaving(self, task_manager: TaskManagerId, report: TaskManagerReport) -> None:
        if report.leaving:
            self._slots.restrictions.take_leaving(task_manager, drains=report.draining)
        if report.draining is not (task_manager in self._announcer.draining):
            self._announcer.review_draining()

    def _take_leave(self, info: TaskManagerInfo) -> None:
        """Drop a task manager that has shut down and holds nothing, without waiting for a timeout."""
        log.info("task manager has shut down", task_manager=info.id, address=info.address)
        self._note(What.TASK_MANAGER_LEFT, info, "has shut down")
        self._term.hearing.left(info.id)
        self._note_lost([self._slots.task_managers.remove(info.id)])

    def _verdict(self, registration: Registration) -> TaskManagerHeartbeatReply:
        """Return what the task manager may forget and what it must stop."""
        epoch, lineage, jobs = self._term.epoch, self._term.lineage, self._slots.jobs
        standbys = self._standbys.wanted_at(registration.info.id, registration.report)
        if self._term.authority.in_doubt:
            return TaskManagerHeartbeatReply(epoch=epoch, known=True, lineage=lineage, reserved_standbys=standbys)
        return TaskManagerHeartbeatReply(
            epoch=epoch,
            known=True,
            lineage=lineage,
            acknowledged=_keys(key for key in registration.exited if jobs.is_settled(*key)),
            stale=_keys(key for key in registration.keys if jobs.is_void(*key)),
            ended=tuple(job_id for job_id in registration.report.left[:LEFT_JOBS] if job_id not in jobs),
            reserved_standbys=standbys,
        )

    def take_lapsed(self, lapsed: Lapsed) -> None:
        """Announce the task managers whose heartbeats have been missing for too long."""
        for info in lapsed.away:
            log.warning(
                "lost contact with task manager, allocating nothing new there; jobs keep what they hold",
                task_manager=info.id,
                address=info.address,
            )
            self._note(What.TASK_MANAGER_SILENT, info, "is silent: it gets nothing new, and jobs keep what they hold")
        if lapsed.away:  # nothing is lost yet, but now only the drivers' own heartbeats are evidence
            self._announcer.listener.task_managers_lost(tuple(info.instance for info in lapsed.away))
        for info, _ in lapsed.lost:
            log.warning(
                "no heartbeat from task manager for too long, removed it", task_manager=info.id, address=info.address
            )
            self._note(What.TASK_MANAGER_LOST, info, "was silent for too long and is removed")
        if lapsed.lost:
            self._note_lost(lapsed.lost)

    def _note(self, what: What, info: TaskManagerInfo, text: str) -> None:
        self._term.chronicle.note(
            Occurrence(
                what=what,
                message=f"task manager {info.id} on node {info.node_id} {text}",
                task_manager=info.id,
                node=info.node_id,
                details={"instance": info.instance},
            )
        )

    def _note_lost(self, lost: Sequence[RemovedTaskManager]) -> None:
        for info, holders in lost:
            self.registrations.remove(info.id, self._clock.now_ms())
            self._gone.append(info.id)
            self._usage.left(info.id)
            for job_id in holders:
                if job_id in self._slots.jobs:
                    self.lost.add(job_id, info.instance)
        self._announcer.lost(tuple(info.instance for info, _ in lost))


def _keys(keys: Iterable[tuple[JobId, int]]) -> tuple[AttemptKey, ...]:
    return tuple(AttemptKey(job_id=job_id, attempt=attempt) for job_id, attempt in keys)


def _attempts_of(report: TaskManagerReport) -> tuple[AttemptKey, ...]:
    held = [(allocation.job_id, allocation.attempt) for allocation in report.allocations]
    held += [(driver.job_id, driver.attempt) for driver in report.drivers]
    return _keys(dict.fromkeys(held))


def _held(report: TaskManagerReport) -> HeldReport:
    drivers = (
        DriverUse(
            driver.job_id, driver.attempt, driver.memory_mb, driver.state is not ProcessState.EXITED, driver.custom
        )
        for driver in report.drivers
    )
    return HeldReport(
        report.sequence,
        report.allocations,
        tuple(drivers),
        standby_drivers=0 if report.standbys is None else report.standbys.drivers,
        keeps_standby_drivers=report.standbys is not None and report.standbys.drivers_kept > 0,
        reserved_standbys={each.job_id: each.why_not for each in report.reserved_standbys[:RESERVED_STANDBYS]},
    )


def _shows_the_same(report: TaskManagerReport, before: TaskManagerReport) -> bool:
    """True if two reports make the same accounts."""
    return (
        report.allocations == before.allocations
        and report.drivers == before.drivers
        and report.standbys == before.standbys
        and report.reserved_standbys == before.reserved_standbys
    )


def _sizes(report: TaskManagerReport) -> dict[JobId, int]:
    """Return the bytes of local state by job."""
    return {state.job_id: state.size for state in report.local_state[:LOCAL_STATE_JOBS]}

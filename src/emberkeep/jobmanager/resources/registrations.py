"""The latest report of each registered task manager."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.protocol.messages.task_manager_reports import ProcessState, TaskManagerReport
from emberkeep.slots.model import ResourceProfile, TaskManagerInfo
from emberkeep.slots.registered_task_managers import RegisteredTaskManagers

NOTHING = ResourceProfile(cores=0, memory_mb=0)


@dataclass
class Registration:
    """A registered task manager instance and its newest report."""

    info: TaskManagerInfo
    report: TaskManagerReport
    heard_ms: int
    keys: tuple[tuple[JobId, int], ...] = ()  # attempts with slots or a live driver there
    exited: tuple[tuple[JobId, int], ...] = ()
    usage_since_ms: int = 0  # see TaskManagerView
    disk_low_since_ms: int = 0
    complete: bool = False  # it has reported since it learned of this epoch

    def take(self, report: TaskManagerReport, now_ms: int) -> None:
        held = [(allocation.job_id, allocation.attempt) for allocation in report.allocations]
        live = [(d.job_id, d.attempt) for d in report.drivers if d.state is not ProcessState.EXITED]
        self.keys = tuple(dict.fromkeys((*held, *live)))
        self.exited = tuple((d.job_id, d.attempt) for d in report.drivers if d.state is ProcessState.EXITED)
        self.report = report
        self.heard_ms = now_ms


class Registrations:
    """One registration for each task manager that the SlotManager has registered.

    ``empty_since_ms``: since when there is none; 0 if there is one.
    """

    def __init__(self, task_managers: RegisteredTaskManagers, now_ms: int) -> None:
        self.empty_since_ms = now_ms
        self._task_managers = task_managers
        self._by_id: dict[TaskManagerId, Registration] = {}

    def get(self, task_manager: TaskManagerId) -> Registration | None:
        return self._by_id.get(task_manager)

    def put(self, info: TaskManagerInfo, report: TaskManagerReport, now_ms: int) -> None:
        """Replace a task manager's registration with a new one, made from its first report."""
        registration = self._by_id[info.id] = Registration(info, report, now_ms)
        registration.take(report, now_ms)
        self.empty_since_ms = 0

    def remove(self, task_manager: TaskManagerId, now_ms: int) -> None:
        self._by_id.pop(task_manager, None)
        if not self._by_id:
            self.empty_since_ms = self.empty_since_ms or now_ms

    def nodes(self) -> set[str]:
        """Return the nodes of all registered task managers."""
        return {registration.info.node_id for registration in self._by_id.values()}

    def ids_by_node(self) -> dict[str, list[TaskManagerId]]:
        """Return the ids of the task managers on each node."""
        found: dict[str, list[TaskManagerId]] = {}
        for key in sorted(self._by_id):
            found.setdefault(self._by_id[key].info.node_id, []).append(key)
        return found

    def views(self) -> list[TaskManagerView]:
        """Return all registered task managers, by id."""
        return [self.view(key) for key in sorted(self._by_id)]

    def view(self, task_manager: TaskManagerId) -> TaskManagerView:
        """Return one task manager. Raises Absent."""
        registration = self._by_id.get(task_manager)
        member = self._task_managers.get(task_manager)
        if registration is None or member is None:
            raise Absent(f"no task manager {task_manager} is registered", hint="GET /v1/taskmanagers lists them")
        return TaskManagerView(
            info=registration.info,
            report=registration.report,
            last_heartbeat_ms=registration.heard_ms,
            free_slots=0 if member.away else max(0, member.free_slots),
            free_driver_places=0 if member.away else max(0, member.free_places),
            free_resources=NOTHING if member.away else member.free(),
            away=member.away,
            blocked=member.is_blocked,
            evacuated=member.is_evacuated,
            disk_full=member.disk_full,
            usage_since_ms=registration.usage_since_ms,
            disk_low_since_ms=registration.disk_low_since_ms,
            kept=tuple(member.kept.values()),
        )

"""Metrics of the task managers: their number, their slots, driver places and standby processes, and each one's load."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from emberkeep.jobmanager.views.cluster import TaskManagerView

_MIB = 1024 * 1024


class TaskManagerMetrics:
    """Sums over all registered task managers, and the load of each."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._count = gauge("emberkeep_task_managers", "Registered task managers.")
        self._away = gauge("emberkeep_task_managers_away", "Task managers without contact whose jobs continue.")
        self._adopted = gauge(
            "emberkeep_adopted_processes",
            "Drivers and executors that task managers have taken over from their previous instances.",
        )
        self._slots = gauge("emberkeep_slots", "Slots of all task managers.")
        self._slots_free = gauge("emberkeep_slots_free", "Slots that are not allocated.")
        self._places = gauge("emberkeep_driver_places", "Driver places of all task managers.")
        self._places_free = gauge("emberkeep_driver_places_free", "Driver places that are free.")
        self._standbys = gauge("emberkeep_standbys_ready", "Standby processes that a job can take now.", ["kind"])
        own = ["task_manager"]
        self._disk = gauge(
            "emberkeep_task_manager_disk_free_bytes", "Free space of the disk with the working directory.", own
        )
        self._memory = gauge("emberkeep_task_manager_memory_used_bytes", "Memory in use on the node.", own)
        self._cpu = gauge("emberkeep_task_manager_cpu_ratio", "Share of the node's processors that is in use.", own)
        self._own_slots = gauge("emberkeep_task_manager_slots", "Slots of the task manager.", own)
        self._own_free = gauge("emberkeep_task_manager_slots_free", "Slots that are not allocated.", own)
        self._blocked = gauge("emberkeep_task_manager_blocked", "1 if nothing new is placed there, else 0.", own)
        self._each = (self._disk, self._memory, self._cpu, self._own_slots, self._own_free, self._blocked)

    def observe(self, views: Sequence[TaskManagerView]) -> None:
        self._count.set(len(views))
        self._away.set(sum(view.away for view in views))
        self._adopted.set(sum(view.report.adopted for view in views))
        self._slots.set(sum(view.info.slots for view in views))
        self._slots_free.set(sum(view.free_slots for view in views))
        self._places.set(sum(view.info.driver_places for view in views))
        self._places_free.set(sum(view.free_driver_places for view in views))
        standbys = [view.report.standbys for view in views if view.report.standbys is not None]
        self._standbys.labels("driver").set(sum(ready.drivers for ready in standbys))
        self._standbys.labels("executor").set(sum(ready.executors for ready in standbys))
        self._observe_each(views)

    def _observe_each(self, views: Sequence[TaskManagerView]) -> None:
        for gauge in self._each:
            gauge.clear()  # series of task managers that are gone
        for view in views:
            name, report = view.info.id, view.report
            self._disk.labels(name).set(report.disk_free_mb * _MIB)
            self._memory.labels(name).set(report.memory_used_mb * _MIB)
            self._cpu.labels(name).set(report.cpu_percent / 100)
            self._own_slots.labels(name).set(view.info.slots)
            self._own_free.labels(name).set(view.free_slots)
            self._blocked.labels(name).set(view.blocked)

"""Metrics of the task managers: their number, their slots, driver places and standby processes, and each one's load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from emberkeep.jobmanager.views.cluster import TaskManagerView

_MIB = 1024 * 1024
_EACH: tuple[tuple[str, str, Callable[[TaskManagerView], float]], ...] = (
    (
        "disk_free_bytes",
        "Free space of the disk with the working directory.",
        lambda view: view.report.disk_free_mb * _MIB,
    ),
    (
        "disk_bytes",
        "Size of the disk with the working directory; 0 if its release does not report it.",
        lambda view: view.report.disk_total_mb * _MIB,
    ),
    ("memory_used_bytes", "Memory in use on the node.", lambda view: view.report.memory_used_mb * _MIB),
    (
        "memory_bytes",
        "Memory of the node; 0 if its release does not report it.",
        lambda view: view.report.memory_total_mb * _MIB,
    ),
    ("cpu_ratio", "Share of the node's processors that is in use.", lambda view: view.report.cpu_percent / 100),
    ("slots", "Slots of the task manager.", lambda view: view.info.slots),
    ("slots_free", "Slots that are not allocated.", lambda view: view.free_slots),
    ("blocked", "1 if nothing new is placed there, else 0.", lambda view: view.blocked),
)


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
        self._each = [
            (gauge(f"emberkeep_task_manager_{name}", doc, ["task_manager"]), value) for name, doc, value in _EACH
        ]

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
        for metric, value in self._each:
            metric.clear()  # series of task managers that are gone
            for view in views:
                metric.labels(view.info.id).set(value(view))

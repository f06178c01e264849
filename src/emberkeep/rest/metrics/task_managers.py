"""Metrics of the task managers: their number, their slots, driver places and standby processes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from emberkeep.jobmanager.views.cluster import TaskManagerView


class TaskManagerMetrics:
    """Sums over all registered task managers."""

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

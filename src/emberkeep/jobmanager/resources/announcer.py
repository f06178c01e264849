"""Tells the Dispatcher which task managers and drivers have changed."""

from __future__ import annotations

from typing import Protocol

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.protocol.messages.task_manager_reports import DriverReport
from emberkeep.protocol.messages.task_managers import AttemptKey
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.restrictions import Restrictions


class ClusterListener(Protocol):
    """Receives changes in the cluster. Calls return at once."""

    def place_granted(self, job_id: JobId, info: TaskManagerInfo, *, only_node: bool) -> None:
        """Note that the job has the driver place that it asked for.

        ``only_node``: no other node could take the driver.
        """

    def place_explained(self, job_id: JobId, text: str, *, blocked: bool) -> None:
        """Note why the job has no driver place yet. ``blocked``: a blocked or full node may provide one later."""

    def task_managers_lost(self, instances: tuple[InstanceId, ...]) -> None:
        """Note that these task manager instances have ended, are lost, or are away (no heartbeat for too long)."""

    def task_managers_draining(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        """Note which task managers stop once their work has moved elsewhere.

        ``movable``: jobs with a driver there for which there is room elsewhere.
        """

    def drivers_changed(
        self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...], vanished: tuple[DriverReport, ...]
    ) -> None:
        """Note the drivers that a task manager lists now, or those that its instance no longer lists."""

    def attempts_seen(self, attempts: tuple[AttemptKey, ...]) -> None:
        """Note the newest attempts that a task manager knows of. Called before all other effects of its report."""

    def drivers_complete(self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...]) -> None:
        """Note all drivers of a task manager, from its first report after it learned that this JobManager leads.

        From then on it refuses late requests of former leaders.
        """


class Announcer:
    """Compares the current state with what the listener knows, and announces the difference."""

    def __init__(self, restrictions: Restrictions) -> None:
        self._restrictions = restrictions
        self._listener: ClusterListener | None = None
        self._movable: frozenset[JobId] = frozenset()
        self.draining: frozenset[TaskManagerId] = frozenset()  # as announced

    def listen(self, listener: ClusterListener) -> None:
        self._listener = listener

    @property
    def listener(self) -> ClusterListener:
        if self._listener is None:
            raise AssertionError("the resource manager runs without a listener")
        return self._listener

    def review_draining(self) -> None:
        """Announce which task managers drain and which drivers there can move, if that has changed."""
        before = (self.draining, self._movable)
        self.draining = self._restrictions.draining()
        self._movable = self._restrictions.movable() if self.draining else frozenset()
        if (self.draining, self._movable) != before:
            self.listener.task_managers_draining(self.draining, self._movable)

    def lost(self, instances: tuple[InstanceId, ...]) -> None:
        """Announce lost instances. Work on draining task managers may no longer have room elsewhere."""
        self.listener.task_managers_lost(instances)
        if self.draining:
            self.review_draining()

    def drivers(
        self, info: TaskManagerInfo, before: tuple[DriverReport, ...], drivers: tuple[DriverReport, ...]
    ) -> None:
        """Announce the drivers that a task manager listed ``before`` and no longer lists, then those that it lists."""
        self.vanished(info, before, drivers)
        if drivers:
            self.listener.drivers_changed(info, drivers, ())

    def vanished(
        self, info: TaskManagerInfo, before: tuple[DriverReport, ...], drivers: tuple[DriverReport, ...]
    ) -> None:
        """Announce the drivers that a task manager listed ``before`` and no longer lists."""
        listed = {(driver.job_id, driver.attempt) for driver in drivers}
        vanished = tuple(driver for driver in before if (driver.job_id, driver.attempt) not in listed)
        if vanished:
            self.listener.drivers_changed(info, (), vanished)

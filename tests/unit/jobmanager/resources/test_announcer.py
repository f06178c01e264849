"""What the Dispatcher is told of drivers and of draining task managers: differences, and nothing twice."""

from __future__ import annotations

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.jobmanager.resources.announcer import Announcer
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState
from emberkeep.protocol.messages.task_managers import AttemptKey
from emberkeep.slots.ledger import DriverUse
from emberkeep.slots.model import TaskManagerInfo
from tests.unit.slots.test_slot_manager import Rig, info

TM_1, TM_2 = TaskManagerId("tm-1"), TaskManagerId("tm-2")
JOB, OTHER = JobId("a" * 32), JobId("b" * 32)


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.drivers: list[tuple[tuple[JobId, ...], tuple[JobId, ...]]] = []
        self.draining: list[tuple[frozenset[TaskManagerId], frozenset[JobId]]] = []
        self.lost: list[tuple[InstanceId, ...]] = []

    def place_granted(self, job_id: JobId, info: TaskManagerInfo, *, only_node: bool) -> None:
        raise NotImplementedError

    def place_explained(self, job_id: JobId, text: str, *, blocked: bool) -> None:
        raise NotImplementedError

    def attempts_seen(self, attempts: tuple[AttemptKey, ...]) -> None:
        raise NotImplementedError

    def drivers_complete(self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...]) -> None:
        raise NotImplementedError

    def task_managers_lost(self, instances: tuple[InstanceId, ...]) -> None:
        self.lost.append(instances)

    def task_managers_draining(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        self.draining.append((task_managers, movable))

    def drivers_changed(
        self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...], vanished: tuple[DriverReport, ...]
    ) -> None:
        self.drivers.append((tuple(each.job_id for each in drivers), tuple(each.job_id for each in vanished)))


def driver(job_id: JobId) -> DriverReport:
    return DriverReport(job_id=job_id, attempt=1, memory_mb=512, state=ProcessState.RUNNING)


def announcing(rig: Rig) -> tuple[Announcer, Listener]:
    announcer, listener = Announcer(rig.slots.restrictions), Listener()
    announcer.listen(listener)
    return announcer, listener


def test_vanished_drivers_are_announced_before_those_that_are_listed() -> None:
    announcer, listener = announcing(Rig())
    announcer.drivers(info("tm-1"), (driver(JOB),), (driver(OTHER),))
    assert listener.drivers == [((), (JOB,)), ((OTHER,), ())]


def test_a_task_manager_without_drivers_is_not_announced() -> None:
    announcer, listener = announcing(Rig())
    announcer.drivers(info("tm-1"), (), ())
    assert listener.drivers == []


def test_draining_is_announced_again_only_when_it_has_changed() -> None:
    rig = Rig()
    announcer, listener = announcing(rig)
    home = rig.add("tm-1")
    job_id = rig.job()
    rig.report(home, drivers=(DriverUse(job_id, 1, 512, live=True),))
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    for _ in range(2):
        announcer.review_draining()
    assert listener.draining == [(frozenset({TM_1}), frozenset())]
    other = rig.add("tm-2")
    announcer.review_draining()
    assert listener.draining[1:] == [(frozenset({TM_1}), frozenset({job_id}))]
    rig.slots.task_managers.remove(other.id)
    announcer.lost((other.instance,))
    assert (listener.lost, listener.draining[2:]) == ([(other.instance,)], [(frozenset({TM_1}), frozenset())])

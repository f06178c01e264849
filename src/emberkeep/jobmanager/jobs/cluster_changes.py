"""Passes the ResourceManager's reports about task managers and their drivers on to the jobs' state machines."""

from __future__ import annotations

from emberkeep.base.actors import Actor, ActorPart, told
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState
from emberkeep.protocol.messages.task_managers import AttemptKey
from emberkeep.slots.model import TaskManagerInfo


class ClusterChanges(ActorPart):
    """Implements ClusterListener."""

    def __init__(self, owner: Actor, machines: JobMachines, moves: DriverMoves) -> None:
        super().__init__(owner)
        self._machines = machines
        self._moves = moves

    @told
    def place_granted(self, job_id: JobId, info: TaskManagerInfo, *, only_node: bool) -> None:
        self._machines.apply(job_id, ev.PlaceGranted(_place(info), only_node))

    @told
    def place_explained(self, job_id: JobId, text: str, *, blocked: bool) -> None:
        self._machines.apply(job_id, ev.PlaceExplained(text, blocked))

    @told
    def attempts_seen(self, attempts: tuple[AttemptKey, ...]) -> None:
        for seen in attempts:
            self._machines.attempt_seen(seen.job_id, seen.attempt)

    @told
    def task_managers_lost(self, instances: tuple[InstanceId, ...]) -> None:
        lost = frozenset(instances)
        for job_id, job in list(self._machines.table.active.items()):
            instance = job.state.stands_on()
            if instance in lost and instance is not None:
                self._machines.apply(job_id, ev.TaskManagerLost(instance))

    @told
    def task_managers_draining(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        self._moves.drain(task_managers, movable)

    @told
    def drivers_changed(
        self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...], vanished: tuple[DriverReport, ...]
    ) -> None:
        place = _place(info)
        for driver in drivers:
            if driver.state is ProcessState.EXITED:
                outcome = self._outcome(driver)
                self._machines.apply(driver.job_id, ev.DriverExited(driver.attempt, place, outcome))
            else:
                listed = ev.DriverListed(driver.attempt, place, driver.pid, driver.start, driver.why_cold)
                self._machines.apply(driver.job_id, listed)
        for driver in vanished:
            self._machines.apply(driver.job_id, ev.DriverVanished(driver.attempt, info.instance))

    def _outcome(self, driver: DriverReport) -> AttemptOutcome:
        outcome = driver.outcome or AttemptOutcome(
            exit_code=1, kind=FailureKind.LOST, message="the driver ended without reporting an outcome"
        )
        job = self._machines.table.active.get(driver.job_id)
        return outcome if job is None else self._moves.judged(job, driver.attempt, outcome)

    @told
    def drivers_complete(self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...]) -> None:
        place, listed = _place(info), {(driver.job_id, driver.attempt) for driver in drivers}
        for job_id, job in list(self._machines.table.active.items()):
            if (job_id, job.state.attempt) not in listed:
                self._machines.apply(
                    job_id, ev.DriverNotAtHome(job.state.attempt, place, continues=info.predecessor is not None)
                )


def _place(info: TaskManagerInfo) -> ev.DriverPlace:
    return ev.DriverPlace(info.id, info.instance, info.address, info.node_id)

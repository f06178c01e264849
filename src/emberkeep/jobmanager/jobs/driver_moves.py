"""Carries out the moves of drivers that must leave evacuated nodes and draining task managers."""

from __future__ import annotations

import msgspec
import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import IdSource, JobId, TaskManagerId
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs import driver_move as move
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome, ExceptionEntry
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.model import Procedure, ProcedureRequest

log = structlog.get_logger(__name__)


class DriverMoves(ActorPart):
    """Makes drivers leave their places, by a request or an order, as the MoveMachines decide."""

    def __init__(
        self,
        owner: Actor,
        machines: JobMachines,
        requests: JobRequests,
        blocked: BlockedPlaces,
        ids: IdSource,
        clock: SteadyClock,
    ) -> None:
        super().__init__(owner)
        self.places = move.PlacesToLeave(blocked)
        self._machines = machines
        self._requests = requests
        self._ids = ids
        self._clock = clock

    @asked
    def block(self, blocked: BlockedPlaces) -> None:
        """Start no driver in blocked places from now on, and move drivers away from evacuated places."""
        self._leave(msgspec.structs.replace(self.places, blocked=blocked))

    def drain(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        """Move drivers away from draining task managers. ``movable``: jobs with a driver there that fits elsewhere."""
        self._leave(msgspec.structs.replace(self.places, draining=task_managers, movable=movable))

    def _leave(self, places: move.PlacesToLeave) -> None:
        self.places = places
        for job in list(self._machines.table.active.values()):
            place = job.state.place
            if place is not None and places.is_blocked(place):
                self._machines.apply(job.job_id, ev.PlaceBlocked(place.instance))
            self.review(job)

    def review(self, job: ManagedJob) -> None:
        """Ask a job's driver to move, or restart the driver elsewhere, if either is due now."""
        self._apply(job, move.Reviewed(_facts(job), self.places))

    def judged(self, job: ManagedJob, attempt: int, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome, turned into a move if the driver had to move when it was lost."""
        driver = _facts(job)
        judged = job.move.outcome(driver, self.places, outcome)
        if judged is not outcome and attempt == driver.attempt:
            self._apply(job, move.LostOnTheWay(driver))
        return judged

    def _apply(self, job: ManagedJob, event: move.Event) -> None:
        for effect in job.move.handle(event, self._clock.now()):
            match effect:
                case move.AskToMove():
                    self._ask_to_move(job)
                case move.RestartElsewhere(attempt):
                    log.info("driver leaves an evacuated node", job=job.job_id)
                    self._machines.apply(job.job_id, ev.MoveDriver(attempt))
                case move.NoteStateLost():
                    self._note(job, effect)

    def _ask_to_move(self, job: ManagedJob) -> None:
        request = ProcedureRequest(
            trigger_id=self._ids.hex32(),
            procedure=Procedure.MOVE,
            requested_ms=self._clock.now_ms(),
            attempt=job.state.attempt,
        )
        try:
            self._requests.give(job, request)
        except (Conflict, RetryLater) as error:
            log.info("cannot move a job yet", job=job.job_id, reason=str(error))

    def _note(self, job: ManagedJob, lost: move.NoteStateLost) -> None:
        log.warning("a driver was left behind", job=job.job_id, reason=lost.message)
        entry = ExceptionEntry(
            timestamp_ms=self._clock.now_ms(),
            attempt=lost.attempt,
            kind="FunctionStateLost",
            message=lost.message,
            task_manager=lost.task_manager,
        )
        self._machines.apply(job.job_id, ev.ExceptionsNoted(lost.attempt, (entry,)))


def _facts(job: ManagedJob) -> move.DriverFacts:
    state, report, driver = job.state, job.report, job.state.driver
    return move.DriverFacts(
        job_id=job.job_id,
        attempt=state.attempt,
        home=None if driver is None or driver.is_gone else driver.stands_at,
        runs=state.phase is Phase.RUNNING and not state.stopped and report is not None,
        has_query=report is not None and bool(report.queries),
        functions=() if report is None else report.functions,
        request=job.requests.newest,
        progress=None if report is None else report.procedure,
    )

"""Carries out the moves of drivers that must leave evacuated nodes and draining task managers."""

from __future__ import annotations

import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import IdSource, JobId, TaskManagerId
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves, Move
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.lifecycle.model import Procedure, ProcedureRequest

log = structlog.get_logger(__name__)


class Evacuation(ActorPart):
    """Asks, or orders, drivers to leave their places, as ``moves`` decides."""

    def __init__(
        self,
        owner: Actor,
        machines: JobMachines,
        moves: DriverMoves,
        requests: JobRequests,
        ids: IdSource,
        clock: SteadyClock,
    ) -> None:
        super().__init__(owner)
        self._machines = machines
        self._moves = moves
        self._requests = requests
        self._ids = ids
        self._clock = clock

    @asked
    def block(self, places: BlockedPlaces) -> None:
        """Start no driver in blocked places from now on, and move drivers away from evacuated ones."""
        self._moves.places = places
        self._review_places()

    def drain(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        """Move drivers away from draining task managers. ``movable``: jobs with a driver there that fits elsewhere."""
        self._moves.draining, self._moves.movable = task_managers, movable
        self._review_places()

    def _review_places(self) -> None:
        for job in list(self._machines.table.active.values()):
            place = job.state.place
            if place is not None and self._moves.is_blocked(place):
                self._machines.apply(job.job_id, ev.PlaceBlocked(place.instance))
            self.review(job)

    def review(self, job: ManagedJob) -> None:
        """Ask a job's driver to move, or restart it elsewhere, if either is due now."""
        move = self._moves.due(job, self._clock.now())
        if move is Move.RESTART:
            log.info("driver leaves an evacuated node", job=job.job_id)
            self._note_left_behind(job)
            self._machines.apply(job.job_id, ev.MoveDriver(job.state.attempt))
        elif move is Move.ASK:
            request = ProcedureRequest(
                trigger_id=self._ids.hex32(), procedure=Procedure.MOVE, requested_ms=self._clock.now_ms()
            )
            try:
                self._requests.give(job, request)
            except Conflict as error:
                log.info("job does not move", job=job.job_id, reason=str(error))

    def judged(self, job: ManagedJob, attempt: int, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome, turned into a move if the driver was lost while it had to move."""
        judged = self._moves.outcome(job, outcome)
        if judged is not outcome and attempt == job.state.attempt:
            self._note_left_behind(job)
        return judged

    def _note_left_behind(self, job: ManagedJob) -> None:
        entries = self._moves.left_behind(job, self._clock.now_ms())
        for entry in entries:
            log.warning("a driver was left behind", job=job.job_id, reason=entry.message)
        if entries:
            self._machines.apply(job.job_id, ev.ExceptionsNoted(job.state.attempt, entries))

"""Drivers that must leave evacuated nodes and draining task managers.

On an evacuated node a streaming driver stops between two micro-batches and continues elsewhere. Another driver is
restarted elsewhere, or stays until its job ends, as the blocklist entry says. Only streaming drivers leave a draining
task manager, each as soon as there is room for it elsewhere.

A streaming driver that cannot stop in this way is asked again. On an evacuated node it is restarted after a timeout,
because the node will be removed. Its functions then continue with their state of the newest savepoint or planned move,
and the job's exceptions say so. On a draining task manager, no driver is restarted before that task manager ends.

Which drivers must move follows from the blocklist and from where the drivers are. Both are reviewed with each report of
a JobMaster and each change of the list. So a new leader need not know what an earlier one decided.
"""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobs.events import DriverPlace
from emberkeep.jobs.model import AttemptOutcome, DriverHome, ExceptionEntry, FailureKind
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.model import Procedure

ASK_AGAIN = 10.0  # seconds until a job that could not move is asked again


class Move(enum.Enum):
    """What to do about a driver."""

    NONE = enum.auto()
    ASK = enum.auto()  # ask it to stop between two micro-batches, by Procedure.MOVE
    RESTART = enum.auto()  # end it; the next attempt starts elsewhere


class DriverMoves:
    """Decides which drivers must move, from the blocklist and the draining task managers.

    ``patience``: seconds after which a streaming driver that has not left its evacuated node is restarted. Even then it
    continues after its newest committed batch. The time of a savepoint does not count.
    """

    def __init__(self, places: BlockedPlaces, patience: float) -> None:
        self.places = places
        self.draining: frozenset[TaskManagerId] = frozenset()
        self.movable: frozenset[JobId] = frozenset()  # jobs with a driver there that fits elsewhere
        self._patience = patience

    def due(self, job: ManagedJob, now: float) -> Move:
        """Return what to do about a job's driver now. Record in ``job`` since when it must move and when it was asked.

        Return ASK at most once every ASK_AGAIN seconds for one attempt.
        """
        machine, running = job.machine, job.requests.newest
        if machine.state.phase is not Phase.RUNNING or machine.state.stopped or job.report is None:
            return Move.NONE
        evacuated = self._is_evacuated(job)
        if not evacuated and not (self._drains(job) and job.job_id in self.movable):
            job.moving_since = None
            return Move.NONE
        if running is not None and running.procedure in (Procedure.SUSPEND, Procedure.DRAIN):
            return Move.NONE  # the job ends with that request
        if not _streams(job):
            return Move.RESTART if self._restarts(job) else Move.NONE
        if job.moving_since is None or job.moving_since[0] != machine.state.attempt:
            job.moving_since = (machine.state.attempt, now)
            job.asked_to_move_at = None
            job.cannot_move = ""
        job.cannot_move = _obstacle(job) or job.cannot_move
        if not evacuated or (running is not None and running.procedure is Procedure.SAVEPOINT):
            # A drain and a savepoint have time limits of their own, and a restart would undo them. So the patience
            # starts later.
            job.moving_since = (machine.state.attempt, now)
        if now - job.moving_since[1] >= self._patience:
            return Move.RESTART
        if running is not None or (job.asked_to_move_at is not None and now - job.asked_to_move_at < ASK_AGAIN):
            return Move.NONE
        job.asked_to_move_at = now
        return Move.ASK

    def outcome(self, job: ManagedJob, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome as a move if the driver was lost while it had to move.

        An earlier leader may have ordered the move, so this does not depend on an order of this leader.
        """
        # A request that has replaced the move is about streaming queries as well.
        moves = _streams(job) or job.requests.newest is not None or self._restarts(job)
        if outcome.kind is FailureKind.LOST and (self._drains(job) or (self._is_evacuated(job) and moves)):
            return msgspec.structs.replace(outcome, kind=FailureKind.MOVED)
        return outcome

    def left_behind(self, job: ManagedJob, now_ms: int) -> tuple[ExceptionEntry, ...]:
        """Return the warning for a streaming driver that had to move and is now ended without its functions' state.

        Return it once for each attempt, and nothing if no such state is lost. Record in ``job`` that it was returned.
        """
        home, report = _home(job), job.report
        if job.machine.state.phase is not Phase.RUNNING or job.machine.state.stopped or home is None or report is None:
            return ()
        if not report.functions or not _streams(job) or job.left_behind == job.machine.state.attempt:
            return ()
        job.left_behind = job.machine.state.attempt
        why = f" The driver could not leave by itself: {job.cannot_move}" if job.cannot_move else ""
        message = (
            f"the driver is restarted, as it has to leave node {home.node_id or home.task_manager}, without the state "
            f"of these functions: {', '.join(report.functions)}. They go on with what they had in the newest savepoint "
            f"or planned move.{why}"
        )
        return (
            ExceptionEntry(
                timestamp_ms=now_ms,
                attempt=job.machine.state.attempt,
                kind="FunctionStateLost",
                message=message,
                task_manager=home.task_manager,
            ),
        )

    def is_blocked(self, place: DriverPlace) -> bool:
        """True if no driver may be started at this place."""
        return place.task_manager in self.draining or self.places.is_blocked(place.task_manager, place.node_id)

    def _is_evacuated(self, job: ManagedJob) -> bool:
        home = _home(job)
        return home is not None and self.places.is_evacuated(home.task_manager, home.node_id)

    def _drains(self, job: ManagedJob) -> bool:
        home = _home(job)
        return home is not None and home.task_manager in self.draining

    def _restarts(self, job: ManagedJob) -> bool:
        home = _home(job)
        return home is not None and self.places.restarts_drivers(home.task_manager, home.node_id)


def _home(job: ManagedJob) -> DriverHome | None:
    """Return where the driver of the current attempt is; None if there is none."""
    driver = job.machine.state.driver
    return None if driver is None or driver.gone else driver.stands_at


def _obstacle(job: ManagedJob) -> str:
    """Return the progress of the current move, or why it has failed; "" if neither is known."""
    running, told = job.requests.newest, None if job.report is None else job.report.procedure
    if running is None or running.procedure is not Procedure.MOVE or told is None:
        return ""
    return (told.failure or told.detail) if told.trigger_id == running.trigger_id else ""


def _streams(job: ManagedJob) -> bool:
    """True if the job has a streaming query, or had one when its current driver was asked to move."""
    running = job.requests.newest
    moves = running is not None and running.procedure is Procedure.MOVE
    moved = job.moving_since is not None and job.moving_since[0] == job.machine.state.attempt
    return moves or moved or (job.report is not None and bool(job.report.queries))

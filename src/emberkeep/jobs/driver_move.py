"""Decide when a job's driver must leave its place, and how.

Pure: events in, effects out.

On an evacuated node a streaming driver stops between two micro-batches and continues elsewhere. Any other driver is
restarted elsewhere, or stays until its job ends, as the blocklist entry says. Only streaming drivers leave a draining
task manager, each as soon as there is room for it elsewhere.

A streaming driver that cannot stop in this way is asked again. On an evacuated node it is restarted after a timeout,
because the node will be removed. Its functions then continue with their state from the newest savepoint or planned
move, and the job's exceptions say so. On a draining task manager, no driver is restarted before that task manager ends.

Which drivers must move follows from the blocklist and from where the drivers are. Both are reviewed with each report of
a JobMaster and each change to the list. So a new leader does not depend on what an earlier one decided.
"""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobs.events import DriverPlace
from emberkeep.jobs.model import AttemptOutcome, DriverHome, FailureKind
from emberkeep.lifecycle.model import Procedure, ProcedureProgress, ProcedureRequest

ASK_AGAIN = 10.0  # seconds until a driver that could not move is asked again


class PlacesToLeave(msgspec.Struct, frozen=True):
    """Where no driver may start, and where drivers must not stay.

    ``movable``: jobs with a driver on a draining task manager that fits elsewhere.
    """

    blocked: BlockedPlaces
    draining: frozenset[TaskManagerId] = frozenset()
    movable: frozenset[JobId] = frozenset()

    def is_blocked(self, place: DriverPlace) -> bool:
        """True if no driver may be started at this place."""
        return place.task_manager in self.draining or self.blocked.is_blocked(place.task_manager, place.node_id)

    def is_evacuated(self, home: DriverHome | None) -> bool:
        return home is not None and self.blocked.is_evacuated(home.task_manager, home.node_id)

    def is_draining(self, home: DriverHome | None) -> bool:
        return home is not None and home.task_manager in self.draining

    def restarts_drivers(self, home: DriverHome | None) -> bool:
        """True if all drivers there must leave, even those that lose their work."""
        return home is not None and self.blocked.restarts_drivers(home.task_manager, home.node_id)


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the driver of a job's newest attempt."""

    job_id: JobId
    attempt: int
    home: DriverHome | None  # None if there is no driver
    runs: bool  # its JobMaster reports, its attempt continues, and no request has stopped the job
    has_query: bool  # a streaming query runs, as the newest report says
    functions: tuple[str, ...] = ()  # user functions with state, as the newest report says
    request: ProcedureRequest | None = None  # what the job is asked to do
    progress: ProcedureProgress | None = None  # the newest report about a request

    def is_asked_for(self, *procedures: Procedure) -> bool:
        return self.request is not None and self.request.procedure in procedures


# --- events -----------------------------------------------------------------------------------------------------------


class Reviewed(msgspec.Struct, frozen=True):
    """The driver has reported, or the places to leave have changed."""

    driver: DriverFacts
    places: PlacesToLeave


class LostOnTheWay(msgspec.Struct, frozen=True):
    """The driver was lost when it had to leave its place but had not yet left; see ``MoveMachine.outcome``."""

    driver: DriverFacts


Event = Reviewed | LostOnTheWay


# --- effects ----------------------------------------------------------------------------------------------------------


class AskToMove(msgspec.Struct, frozen=True):
    """Ask the job's driver to stop between two micro-batches, with Procedure.MOVE."""


class RestartElsewhere(msgspec.Struct, frozen=True):
    """Stop the driver of this attempt. The next attempt starts elsewhere."""

    attempt: int


class NoteStateLost(msgspec.Struct, frozen=True):
    """Note in the job's exceptions that the next attempt continues without its functions' newest state."""

    attempt: int
    task_manager: TaskManagerId
    message: str


Effect = AskToMove | RestartElsewhere | NoteStateLost


class Leaving(msgspec.Struct, frozen=True):
    """A streaming driver that must leave its place. ``since``: seconds on a steady clock."""

    attempt: int
    since: float  # ``patience`` is measured from then
    obstacle: str = ""  # the progress of its newest move, or why that has failed


class MoveMachine:
    """The moves of one job's driver. The state changes only in ``handle``.

    ``patience``: seconds after which a streaming driver that has not left its evacuated node is restarted. Even then it
    continues after its newest committed batch. The duration of a savepoint is not part of that time.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._leaving: Leaving | None = None
        self._asked: tuple[int, float] | None = None  # which attempt's driver was last asked to move, and when
        self._noted = 0  # the newest attempt whose lost state was noted

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Apply one event and return the effects. ``now``: seconds on a steady clock."""
        match event:
            case Reviewed(driver, places):
                return self._review(driver, places, now)
            case LostOnTheWay(driver):
                return self._note_state_lost(driver)

    # --- what others read ---------------------------------------------------------------------------------------------

    def leaving(self, attempt: int) -> Leaving | None:
        """Return the departure of this attempt's driver; None if it is not known to stream, or need not leave."""
        return self._leaving if self._leaving is not None and self._leaving.attempt == attempt else None

    def outcome(self, driver: DriverFacts, places: PlacesToLeave, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return ``outcome``, changed to a move if the driver had to leave its place when it was lost.

        An earlier leader may have ordered the move, so this does not depend on an order of this leader.
        """
        # A request that has replaced the move is about streaming queries as well.
        moves = self._streams(driver) or driver.request is not None or places.restarts_drivers(driver.home)
        had_to_leave = places.is_draining(driver.home) or (places.is_evacuated(driver.home) and moves)
        if outcome.kind is FailureKind.LOST and had_to_leave:
            return msgspec.structs.replace(outcome, kind=FailureKind.MOVED)
        return outcome

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _review(self, driver: DriverFacts, places: PlacesToLeave, now: float) -> list[Effect]:
        if not driver.runs:
            return []
        evacuated = places.is_evacuated(driver.home)
        if not evacuated and not (places.is_draining(driver.home) and driver.job_id in places.movable):
            self._leaving = None
            return []
        if driver.is_asked_for(Procedure.SUSPEND, Procedure.DRAIN):
            return []  # the job ends with that request
        if not self._streams(driver):
            return self._restart(driver) if places.restarts_drivers(driver.home) else []
        return self._press(driver, now, patiently=not evacuated or driver.is_asked_for(Procedure.SAVEPOINT))

    def _press(self, driver: DriverFacts, now: float, *, patiently: bool) -> list[Effect]:
        """Ask a streaming driver to leave, or restart it elsewhere after ``patience`` seconds.

        ``patiently``: do not count those seconds yet. A savepoint, and the draining of a task manager, have time limits
        of their own, and a restart would defeat them.
        """
        known = self.leaving(driver.attempt) or Leaving(driver.attempt, now)
        since = now if patiently else known.since
        self._leaving = Leaving(driver.attempt, since, _obstacle(driver) or known.obstacle)
        if now - since >= self._patience:
            return self._restart(driver)
        if driver.request is not None or self._was_just_asked(driver.attempt, now):
            return []
        self._asked = (driver.attempt, now)
        return [AskToMove()]

    def _was_just_asked(self, attempt: int, now: float) -> bool:
        return self._asked is not None and self._asked[0] == attempt and now - self._asked[1] < ASK_AGAIN

    def _restart(self, driver: DriverFacts) -> list[Effect]:
        return [*self._note_state_lost(driver), RestartElsewhere(driver.attempt)]

    def _note_state_lost(self, driver: DriverFacts) -> list[Effect]:
        """Return the note about a streaming driver that ends without its functions' state, once for each attempt."""
        home, leaving = driver.home, self.leaving(driver.attempt)
        if home is None or not driver.runs or not driver.functions or not self._streams(driver):
            return []
        if self._noted == driver.attempt:
            return []
        self._noted = driver.attempt
        why = f" The driver could not leave by itself: {leaving.obstacle}" if leaving and leaving.obstacle else ""
        message = (
            f"the driver must leave node {home.node_id or home.task_manager} and is restarted without the current "
            f"state of these functions: {', '.join(driver.functions)}. They continue with their state in the newest "
            f"savepoint or planned move.{why}"
        )
        return [NoteStateLost(driver.attempt, home.task_manager, message)]

    def _streams(self, driver: DriverFacts) -> bool:
        """True if the job has a streaming query, or had one when its current driver was asked to move."""
        return driver.has_query or driver.is_asked_for(Procedure.MOVE) or self.leaving(driver.attempt) is not None


def _obstacle(driver: DriverFacts) -> str:
    """Return the progress of the current move, or why it has failed; "" if neither is known."""
    request, told = driver.request, driver.progress
    if request is None or request.procedure is not Procedure.MOVE or told is None:
        return ""
    return (told.failure or told.detail) if told.trigger_id == request.trigger_id else ""

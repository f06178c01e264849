"""Orders to start and stop drivers: a bounded number at a time, and only while this JobManager certainly leads."""

from __future__ import annotations

from functools import partial

from emberkeep.base.actors import Actor
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.bounded_calls import BoundedCalls
from emberkeep.jobmanager.jobs.attempt_hold import AttemptHold
from emberkeep.jobmanager.jobs.driver_calls import DriverCalls
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobs import events as ev

CALLS_AT_ONCE = 32


class DriverOrders:
    """Orders that wait for their turn or are under way, at most one of a kind for each attempt.

    Belongs to ``owner``. An order that may not be given now is dropped: the job's state machine gives it again.
    """

    def __init__(
        self,
        owner: Actor,
        machines: JobMachines,
        calls: DriverCalls,
        authority: Authority,
        hold: AttemptHold,
        moves: DriverMoves,
    ) -> None:
        self._owner = owner
        self._machines = machines
        self._calls = calls
        self._authority = authority
        self._hold = hold
        self._moves = moves
        self._turns = BoundedCalls(owner, CALLS_AT_ONCE)

    def start(self, job: ManagedJob, attempt: int, place: ev.DriverPlace) -> None:
        """Order the driver's start, or release its place if the place is now blocked.

        While an earlier order to start the driver is under way, keep the place, because that order may still arrive.
        """
        key = ("start", job.job_id, attempt)
        if not self._moves.places.is_blocked(place):
            self._turns.submit(key, partial(self._start, job, attempt, place))
        elif not self._turns.is_running(key):
            self._owner.tell(partial(self._machines.apply, job.job_id, ev.PlaceBlocked(place.instance)))

    async def _start(self, job: ManagedJob, attempt: int, place: ev.DriverPlace) -> None:
        if self._hold.waits_for(job) or not await self._authority.confirmed():
            return
        if self._moves.places.is_blocked(place):
            return  # blocked while this waited its turn; the machine repeats the order and learns of the block
        event = await self._calls.start(job, attempt, place)
        if event is not None:
            self._owner.tell(partial(self._machines.apply, job.job_id, event))

    def stop(self, job_id: JobId, attempt: int, place: ev.DriverPlace, grace: float) -> None:
        """Order the driver to stop within ``grace`` seconds."""
        self._turns.submit(("stop", job_id, attempt), partial(self._stop, job_id, attempt, place, grace))

    async def _stop(self, job_id: JobId, attempt: int, place: ev.DriverPlace, grace: float) -> None:
        if not await self._authority.confirmed():
            return
        event = await self._calls.stop(job_id, attempt, place, grace)
        if event is not None:
            self._owner.tell(partial(self._machines.apply, job_id, event))

"""What the Dispatcher reports to the ResourceManager: jobs, their attempts, and which of them wait for a place."""

from __future__ import annotations

from emberkeep.base.actors import Actor, ActorPart, told
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.resources.job_standbys import JobStandbys
from emberkeep.jobmanager.resources.lost_instances import LostInstances
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.slots.job_accounts import JobAccounts
from emberkeep.slots.ledger import DriverNeed


class JobNeeds(ActorPart):
    """Keeps the accounts of jobs. Lost instances are forgotten with the attempt that they belonged to."""

    def __init__(
        self, owner: Actor, accounts: JobAccounts, lost: LostInstances, standbys: JobStandbys, clock: SteadyClock
    ) -> None:
        super().__init__(owner)
        self._accounts = accounts
        self._lost = lost
        self._standbys = standbys
        self._clock = clock

    @told
    def add_job(
        self,
        job_id: JobId,
        order: int,
        attempt: int,
        namespace: str = "",
        priority: int = 0,
        *,
        gang: bool = False,
        is_described: bool = True,
    ) -> None:
        """Add a job. ``attempt``: the newest one recorded; 0 if none is. ``is_described``: see JobAccount."""
        self._accounts.add(job_id, order, attempt, namespace, priority, gang=gang, is_described=is_described)

    @told
    def describe_job(self, job_id: JobId, namespace: str, priority: int, *, gang: bool) -> None:
        """Set what was unknown when the job was added, because its graph could not be read."""
        self._accounts.describe(job_id, namespace, priority, gang=gang)

    @told
    def begin_attempt(self, job_id: JobId, attempt: int) -> None:
        self._lost.forget(job_id)
        self._accounts.begin_attempt(job_id, attempt, self._clock.now())

    @told
    def end_attempt(self, job_id: JobId, attempt: int, *, returns: bool) -> None:
        """Free what the attempt has, or keep it for the next one if the job ``returns``."""
        self._accounts.end_attempt(job_id, attempt, self._clock.now(), returns=returns)

    @told
    def close_requirements(self, job_id: JobId, attempt: int, *, returns: bool) -> None:
        """Give this attempt no more slots. ``returns``: keep those that it has for the next one."""
        self._accounts.close_requirements(job_id, attempt, self._clock.now(), returns=returns)

    @told
    def remove_job(self, job_id: JobId) -> None:
        self._lost.forget(job_id)
        self._standbys.forget(job_id)
        self._accounts.remove(job_id)

    @told
    def request_place(self, job_id: JobId, need: DriverNeed, attempt: int) -> None:
        """Look for a place for this attempt's driver, until one is granted or the request is withdrawn."""
        self._accounts.request_place(job_id, need, attempt, self._clock.now())

    @told
    def withdraw_place(self, job_id: JobId) -> None:
        self._accounts.withdraw_place(job_id)

"""The deadlines of jobs' state machines: each is fed to its state machine once the leadership is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emberkeep.base.actors import Actor
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.alarms import Alarms
from emberkeep.jobmanager.term import Term


class Deadlines:
    """The deadlines, at most one per job. Belongs to ``owner``, in whose turn ``due`` is called with the job."""

    def __init__(self, owner: Actor, term: Term, due: Callable[[JobId], None]) -> None:
        self._owner = owner
        self._authority = term.authority
        self._due = due
        self._alarms = Alarms(term.clock.now, self._rings)
        self._ringing: set[JobId] = set()  # a deadline is due, but the leadership is not confirmed yet

    def set(self, job_id: JobId, at: float | None) -> None:
        """Set or move a job's deadline, in seconds of the term's clock; ``at`` None drops the deadline."""
        self._alarms.set(job_id, at)

    async def run(self) -> None:
        """Notice due deadlines until cancelled."""
        await self._alarms.run()

    def _rings(self, job_id: JobId) -> None:
        if job_id not in self._ringing:
            self._ringing.add(job_id)
            self._owner.start_effect(f"deadline of {job_id}", self._pass_on(job_id), deadline=None)

    async def _pass_on(self, job_id: JobId) -> None:
        """Wait until the leadership is confirmed, because a deadline can end a driver."""
        try:
            await self._authority.wait()
        finally:
            self._ringing.discard(job_id)
        self._owner.tell(partial(self._due, job_id))

"""Which attempts of a job may still store BLOBs and give references back (HA-7). Pure."""

from __future__ import annotations

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId

NO_ATTEMPT = 0  # of requests that act for no attempt of a job: a client's, the JobManager's own


class AttemptFences:
    """Of each job that runs: its attempts up to this one are over. It grows, and is forgotten with its job."""

    def __init__(self) -> None:
        self._over: dict[JobId, int] = {}

    def end(self, owner: JobId, attempt: int) -> None:
        """This attempt and all before it are over."""
        if attempt > self._over.get(owner, NO_ATTEMPT):
            self._over[owner] = attempt

    def is_over(self, owner: JobId, attempt: int) -> bool:
        return NO_ATTEMPT < attempt <= self._over.get(owner, NO_ATTEMPT)

    def refuse_over(self, owner: JobId, attempt: int) -> None:
        """Raise Conflict when the attempt has been superseded."""
        if self.is_over(owner, attempt):
            raise Conflict(
                f"attempt {attempt} of job {owner} is over: it changes no BLOB any more",
                hint="a newer attempt has taken its place; the process of this one has to end",
            )

    def forget(self, owner: JobId) -> None:
        """The job has ended for good: nothing can be stored for it at all."""
        self._over.pop(owner, None)

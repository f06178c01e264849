"""Decide which attempts of a job may still store BLOBs and release references (HA-7). Pure."""

from __future__ import annotations

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId

NO_ATTEMPT = 0  # for requests that act for no attempt of a job: a client's, or the JobManager's own


class AttemptFences:
    """For each running job, the newest attempt that has ended.

    All earlier attempts have ended too. The number never decreases; it is dropped when the job ends.
    """

    def __init__(self) -> None:
        self._over: dict[JobId, int] = {}

    def end(self, owner: JobId, attempt: int) -> None:
        """Note that this attempt and all earlier ones have ended."""
        if attempt > self._over.get(owner, NO_ATTEMPT):
            self._over[owner] = attempt

    def is_over(self, owner: JobId, attempt: int) -> bool:
        return NO_ATTEMPT < attempt <= self._over.get(owner, NO_ATTEMPT)

    def refuse_over(self, owner: JobId, attempt: int) -> None:
        """Raise Conflict if the attempt has been superseded."""
        if self.is_over(owner, attempt):
            raise Conflict(
                f"attempt {attempt} of job {owner} is over and may no longer change BLOBs",
                hint="a newer attempt has replaced it; end the process of this one",
            )

    def forget(self, owner: JobId) -> None:
        """Drop the fence of a job that has ended permanently: nothing can be stored for it anyway."""
        self._over.pop(owner, None)

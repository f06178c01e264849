"""How long a standby pool waits after failures, before it starts the next such process."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from emberkeep.base.ids import JobId
from emberkeep.slots.standbys.events import StandbyProfile

FIRST_PAUSE, LONGEST_PAUSE = 15.0, 900.0  # seconds

# What failures are counted for: a profile, and the job of a reserved standby. What such a job imports must not keep
# other processes from being started.
Cause = tuple[StandbyProfile, JobId | None]


@dataclass(frozen=True)
class _Failures:
    """Failures since a job last took such a process. ``resume_at``: when the next one may be started."""

    count: int
    resume_at: float


class BackOff:
    """The failures by their causes. The pause doubles with each, and ends when a job has taken such a process."""

    def __init__(self) -> None:
        self._failures: dict[Cause, _Failures] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def __contains__(self, cause: Cause) -> bool:
        return cause in self._failures

    def failed(self, cause: Cause, now: float, known: AbstractSet[Cause]) -> None:
        """Count a failure. Forget all causes that are not ``known``."""
        self._failures = {each: failures for each, failures in self._failures.items() if each in known}
        earlier = self._failures.get(cause)
        count = 1 if earlier is None else earlier.count + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(count - 1, 30), LONGEST_PAUSE)
        self._failures[cause] = _Failures(count, now + pause)

    def worked(self, cause: Cause) -> None:
        """Note that a job has taken such a process."""
        self._failures.pop(cause, None)

    def pauses(self, cause: Cause, now: float) -> bool:
        """True if no such process may be started yet."""
        failures = self._failures.get(cause)
        return failures is not None and now < failures.resume_at

"""Events and effects of the standby pool."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from emberkeep.base.ids import JobId

MINIMUM_OVERHEAD_MB = 384
DEFAULT_HEAP_MB = 1024  # Spark's default for drivers and executors


class StandbyKind(enum.Enum):
    DRIVER = "driver"
    EXECUTOR = "executor"


class StandbyProfile(msgspec.Struct, frozen=True):
    """What a standby process cannot change later: heap of its JVM in MiB, and Java options that jobs set."""

    kind: StandbyKind
    heap_mb: int
    java_options: tuple[str, ...] = ()

    @property
    def memory_mb(self) -> int:
        """MiB that the process takes: heap and overhead, by Spark's rule for executors."""
        return self.heap_mb + max(MINIMUM_OVERHEAD_MB, self.heap_mb // 10)


class Asked(msgspec.Struct, frozen=True):
    """A job starts a process with this profile. ``fits``: False if only a cold process can do what the job needs."""

    profile: StandbyProfile
    fits: bool = True


class Reserve(msgspec.Struct, frozen=True):
    """The jobs for which the pool keeps a reserved standby, with its profile. Only that job can take it."""

    profiles: Mapping[JobId, StandbyProfile]


class Warmed(msgspec.Struct, frozen=True):
    """A standby process has done its warm-up."""

    standby_id: str


class Prepared(msgspec.Struct, frozen=True):
    """A reserved standby is prepared for its job."""

    standby_id: str


class StandbyTaken(msgspec.Struct, frozen=True):
    """A job has taken a standby process, which no longer belongs to the pool."""

    standby_id: str


class TakeEnded(msgspec.Struct, frozen=True):
    """A process that a job has taken is the job's now. ``failed``: it is not, and was killed.

    ``job_id``: the job that it was reserved for; None if it was for any job.
    """

    profile: StandbyProfile
    failed: bool
    job_id: JobId | None = None


class StandbyEnded(msgspec.Struct, frozen=True):
    """A standby process has ended, or could not be started. ``reason``: why, if the pool did not end it."""

    standby_id: str
    reason: str = ""


class Look(msgspec.Struct, frozen=True):
    """The state of the task manager, at least once a second.

    ``free_mb``: memory in MiB that no slot and no driver has reserved. ``is_busy``: True while processes of jobs start.
    """

    free_mb: int
    is_busy: bool


class StartStandby(msgspec.Struct, frozen=True):
    """Start and warm a standby process."""

    standby_id: str
    profile: StandbyProfile


class PrepareStandby(msgspec.Struct, frozen=True):
    """Prepare a warm process for the job that it is reserved for. ``imports``: False to import nothing for the job."""

    standby_id: str
    job_id: JobId
    imports: bool = True


class EndStandby(msgspec.Struct, frozen=True):
    """End a standby process."""

    standby_id: str
    reason: str


StandbyEvent = Asked | Reserve | Warmed | Prepared | StandbyTaken | TakeEnded | StandbyEnded | Look
StandbyEffect = StartStandby | PrepareStandby | EndStandby

"""The durable record of an upgrade, what its steps are decided from, and what is decided, as plain data."""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph, JobStatus


class UpgradePhase(enum.Enum):
    """What an upgrade does now, or how it has ended."""

    STOPPING = "STOPPING"  # the old job is being stopped with a savepoint
    STARTING = "STARTING"  # the new job is being submitted, from that savepoint
    WATCHING = "WATCHING"  # the new job must show that it works
    CANCELLING = "CANCELLING"  # the new job is being cancelled, because it is not good
    RETURNING = "RETURNING"  # the old code is being submitted again, from the same savepoint
    # The job that the first three of these leave running may have ended since.
    DONE = "DONE"  # the new code runs
    RETURNED = "RETURNED"  # the old code was started again, under a new job id
    UNCHANGED = "UNCHANGED"  # the old job was not stopped, and continues
    FAILED = "FAILED"  # neither version is kept running: a person must decide

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = (UpgradePhase.DONE, UpgradePhase.RETURNED, UpgradePhase.UNCHANGED, UpgradePhase.FAILED)


class Upgrade(Compatible, frozen=True, kw_only=True):
    """One upgrade of one job. Persisted (kind "job-upgrade", version 1).

    - ``upgrade_id``: 32 hex digits, from the client; also the trigger id of the old job's stop.
    - ``job_id``: the old job. ``new_id``, ``back_id``: the jobs that may follow it, fixed before anything is done.
    - ``batches``: micro-batches that each streaming query of the new job must commit within ``within_ms`` of its start.
      ``restarts``: how often its driver may be restarted meanwhile.
    - ``phase_ms``: when the phase began. All times are Unix milliseconds; 0: not yet.
    - ``new``, ``back``: graphs of these jobs, without the savepoint; None once the upgrade has ended.
    - ``bases``: for each checkpoint location of the new job, the batch after which its batches are counted.
    - ``reason``: why the upgrade goes or went back, or ended otherwise than DONE.
    - ``canceled_by``: who asked for the end of the upgrade; "" if nobody did.
    """

    upgrade_id: str
    job_id: JobId
    name: str
    new_id: JobId
    back_id: JobId
    batches: int
    within_ms: int
    restarts: int
    phase: UpgradePhase
    phase_ms: int
    began_ms: int
    target_directory: str
    stop_deadline_ms: int
    new: JobGraph | None = None
    back: JobGraph | None = None
    owner: str = ""
    namespace: str = ""
    savepoint: str = ""
    bases: dict[str, int] = msgspec.field(default_factory=dict)
    reason: str = ""
    canceled_by: str = ""
    ended_ms: int = 0

    @property
    def jobs(self) -> tuple[JobId, JobId, JobId]:
        return self.job_id, self.new_id, self.back_id

    @property
    def kept_job(self) -> JobId | None:
        """The job that the upgrade has left running; None while it goes on, and if it has left none."""
        kept = {
            UpgradePhase.DONE: self.new_id,
            UpgradePhase.RETURNED: self.back_id,
            UpgradePhase.UNCHANGED: self.job_id,
        }
        return kept.get(self.phase)

    @property
    def has_known_owner(self) -> bool:
        return True


# --- facts ------------------------------------------------------------------------------------------------------------


class StopState(enum.Enum):
    UNKNOWN = "unknown"  # it was not asked for, or has failed under an earlier leader
    OPEN = "open"
    MADE = "made"  # the savepoint is complete and recorded
    UNREADABLE = "unreadable"  # the same, but the record of the savepoint cannot be read now
    FAILED = "failed"


class StopFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The request that stops the old job."""

    state: StopState
    savepoint: str = ""
    failure: str = ""


class QueryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A running streaming query. ``batch``: its newest committed batch; -1: none is known.

    ``location``: of its checkpoint, or the name of its run if it has none.
    ``has_rows``: that batch has read rows, so the query has run it since its start. ``waits``: for data or its next
    trigger.
    """

    name: str
    location: str
    batch: int
    has_rows: bool
    waits: bool


class VersionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three jobs, as the JobManager knows it now.

    ``is_known``: it is accepted, or is just being accepted. ``status``: None unless it is accepted. ``is_over``: it has
    ended, and so has its driver. ``cause``: why it failed, or its newest failure. ``is_stopping``: it is being stopped
    with a savepoint, or has been and ends with its script.
    """

    is_known: bool
    status: JobStatus | None = None
    is_over: bool = False
    attempt: int = 0
    cause: str = ""
    is_stopping: bool = False
    queries: tuple[QueryFacts, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.status is not None and self.status.is_globally_terminal


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an upgrade's next step depends on."""

    stop: StopFacts
    old: VersionFacts
    new: VersionFacts
    back: VersionFacts


# --- effects ----------------------------------------------------------------------------------------------------------


class WriteUpgrade(msgspec.Struct, frozen=True):
    """Record the upgrade durably; answer with ``written``."""

    upgrade: Upgrade


class AskStop(msgspec.Struct, frozen=True):
    """Ask the old job for its stop. A refusal comes back as ``stop_refused``."""


class SubmitJob(msgspec.Struct, frozen=True):
    """Accept this job; answer with ``submitted``. Repeating it has no effect."""

    graph: JobGraph


class CancelJob(msgspec.Struct, frozen=True):
    """Cancel the new job durably; answer with ``cancel_recorded``. Repeating it has no effect."""

    job_id: JobId


Effect = WriteUpgrade | AskStop | SubmitJob | CancelJob

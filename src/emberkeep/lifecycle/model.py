"""Requests to a running job and their progress: small values that are sent and stored.

Source: Flink FLIP-34 (stop with savepoint: suspend and drain) and FLIP-46 (the order of calls to user functions).
"""

from __future__ import annotations

import enum

from emberkeep.base.compatible import Compatible


class Procedure(enum.Enum):
    """What to do with the job's streaming queries, always between two micro-batches."""

    SAVEPOINT = "SAVEPOINT"  # copy the state; the job continues to run
    SUSPEND = "SUSPEND"  # stop, savepoint; the script continues after its awaits, and the job ends with it
    DRAIN = "DRAIN"  # stop, emit everything in event-time state, savepoint; ends as SUSPEND does
    MOVE = "MOVE"  # stop, keep the functions' state; the next attempt starts elsewhere, and no failure is counted

    @property
    def makes_savepoint(self) -> bool:
        return self is not Procedure.MOVE

    @property
    def ends_attempt(self) -> bool:
        return self is not Procedure.SAVEPOINT

    @property
    def stops_job(self) -> bool:
        return self in (Procedure.SUSPEND, Procedure.DRAIN)


class ProcedureRequest(Compatible, frozen=True, kw_only=True):
    """A request for a procedure. Persisted in the record of the job's attempt.

    It is stored before anything is done and kept until its end is recorded, so that a new leader and the next attempt
    continue it. ``trigger_id``: 32 hex digits, from the client. ``deadline_ms`` (Unix milliseconds): if the running
    micro-batches have not ended by then, the procedure fails and the job continues; 0: no deadline. ``periodic``: the
    JobManager itself makes this savepoint, as the job's settings say. ``attempt``: for a MOVE, whose driver must leave;
    0 if an earlier release asked for that.
    """

    trigger_id: str
    procedure: Procedure
    target_directory: str = ""  # URI below which the savepoint gets a directory of its own; "" for MOVE
    requested_ms: int = 0  # Unix milliseconds
    deadline_ms: int = 0
    periodic: bool = False
    attempt: int = 0

    def seconds_left(self, now_ms: int) -> float:
        """Return how much of its time is left if it is ``now_ms``: never more than it was given.

        Whoever enforces the deadline asks this once, and then measures, so that no jump of a clock ends a request. A
        driver counts the time in which it is frozen; a leader does not, nor that in which it may decide nothing.
        """
        return min(self.deadline_ms - now_ms, self.deadline_ms - self.requested_ms) / 1000

    def is_late_for(self, attempt: int) -> bool:
        """True if the job's newest attempt, ``attempt``, need not carry it out: a MOVE of an earlier attempt's driver.

        Its record may be written after that of the newer attempt, which ends a MOVE that is recorded.
        """
        return self.procedure is Procedure.MOVE and 0 < self.attempt < attempt


class ProcedurePhase(enum.Enum):
    """Progress of a procedure. COMPLETED and FAILED are final."""

    FINISHING_BATCHES = "FINISHING_BATCHES"  # waiting for the running micro-batches to commit
    DRAINING = "DRAINING"  # running the batches that a drain plans, with the highest watermark
    COPYING = "COPYING"  # writing the savepoint
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        return self in (ProcedurePhase.COMPLETED, ProcedurePhase.FAILED)


class ProcedureProgress(Compatible, frozen=True, kw_only=True):
    """What the JobMaster reports about the newest request, repeatedly until its end is recorded.

    FAILED: the job continues as before (END-6). COMPLETED, for a procedure that ends the attempt: the script still
    waits for its queries, and continues once the JobManager has recorded the end.
    """

    trigger_id: str
    phase: ProcedurePhase
    detail: str = ""  # in words: "finishing batch 41 of query flights"
    files_done: int = 0
    files_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    started_ms: int = 0  # Unix milliseconds
    ended_ms: int = 0  # Unix milliseconds, with a final phase
    savepoint: str = ""  # its path, with COMPLETED
    manifest_sha256: str = ""  # with ``savepoint``
    warning: str = ""  # what users must know although it succeeded
    failure: str = ""  # with FAILED: what was wrong, where, and what to do about it
    impossible: bool = False  # with FAILED: it fails again for as long as the job runs these queries
    procedure: Procedure | None = None  # what was asked for; None from a driver of an earlier release

"""What a running job is asked to do, and how far it has come: small values that travel and are stored.

Source: Flink FLIP-34 (stop with savepoint: suspend and drain) and FLIP-46 (the order of calls to user functions).
"""

from __future__ import annotations

import enum

from emberkeep.base.compatible import Compatible


class Procedure(enum.Enum):
    """What is done with the job's streaming queries, always between two micro-batches."""

    SAVEPOINT = "SAVEPOINT"  # copied; the job runs on
    SUSPEND = "SUSPEND"  # stopped, savepoint; the script goes on after its awaits, and the job ends with it
    DRAIN = "DRAIN"  # stopped, everything in event-time state comes out, savepoint; ends as SUSPEND does
    MOVE = "MOVE"  # stopped, states of functions kept; the next attempt starts elsewhere, and no failure is counted

    @property
    def makes_savepoint(self) -> bool:
        return self is not Procedure.MOVE

    @property
    def ends_attempt(self) -> bool:
        return self is not Procedure.SAVEPOINT


class ProcedureRequest(Compatible, frozen=True, kw_only=True):
    """Stored with the job's handle before anything is done, until its end is recorded: so a new leader, and the next
    attempt, carry it on. ``trigger_id``: 32 hex digits, of whoever asked. ``deadline_ms``: when the micro-batches that
    run have not ended by then, in Unix milliseconds, it fails and the job goes on; 0: they have as long as they take.
    Persisted in the record of the job's attempt.
    """

    trigger_id: str
    procedure: Procedure
    target_directory: str = ""  # URI below which the savepoint gets a directory of its own; "" for MOVE
    requested_ms: int = 0  # Unix milliseconds
    deadline_ms: int = 0


class ProcedurePhase(enum.Enum):
    """How far a procedure has come. COMPLETED and FAILED are final."""

    FINISHING_BATCHES = "FINISHING_BATCHES"  # the running micro-batches commit
    DRAINING = "DRAINING"  # planned batches with the highest watermark
    COPYING = "COPYING"  # the savepoint is written
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        return self in (ProcedurePhase.COMPLETED, ProcedurePhase.FAILED)


class ProcedureProgress(Compatible, frozen=True, kw_only=True):
    """What the JobMaster tells of the procedure that it was asked for last, again and again until it is recorded.

    FAILED: the job goes on as before (END-6). COMPLETED of one that ends the attempt: the script still waits in its
    awaits; it goes on once the JobManager has recorded the end.
    """

    trigger_id: str
    phase: ProcedurePhase
    detail: str = ""  # in words: "finishing batch 41 of query flights"
    files_done: int = 0
    files_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    started_ms: int = 0
    ended_ms: int = 0  # with a final phase
    savepoint: str = ""  # its path, with COMPLETED
    manifest_sha256: str = ""  # with ``savepoint``
    warning: str = ""  # what is to be known of it beside that it has succeeded
    failure: str = ""  # with FAILED: what was wrong, where, and what to do

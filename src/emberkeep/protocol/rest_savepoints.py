"""REST bodies about savepoints and stops, in the shapes of Flink's API; our own fields are below ``emberkeep``.

Operations are asynchronous. The reply to a request is its trigger id, with which the client polls until the operation
is COMPLETED. A completed operation has succeeded or names its failure.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure
from emberkeep.protocol.rest import Duration, Kebab, Millis, ProcedureInfo

FormatType = Literal["CANONICAL", "NATIVE", "UNALIGNED"]


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop a job with a savepoint. ``drain``: everything that its event-time state holds comes out before.

    ``targetDirectory``: null or absent: the default one. ``triggerId``: the client's choice, 32 hex digits, so that it
    may repeat the request. ``timeout``: how long the micro-batches that run may take to end, in milliseconds; then the
    operation fails and the job goes on. Default: execution.stop.batch-timeout. ``formatType`` means nothing: there is
    one format.
    """

    drain: bool = False
    target_directory: str | None = field(default=None, name="targetDirectory")
    trigger_id: str | None = field(default=None, name="triggerId")
    timeout: Duration | None = None
    format_type: FormatType | None = field(default=None, name="formatType")


class SavepointRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a savepoint of a job that runs on; with ``cancel-job`` it is suspended. The others as in StopRequest."""

    target_directory: str | None = field(default=None, name="target-directory")
    cancel_job: bool = field(default=False, name="cancel-job")
    trigger_id: str | None = field(default=None, name="triggerId")
    timeout: Duration | None = None
    format_type: FormatType | None = field(default=None, name="formatType")


class TriggerExtension(Kebab, frozen=True, kw_only=True):
    """``target-directory``: below which the savepoint gets a directory of its own. ``deadline``: until when the
    micro-batches that run may take to end."""

    procedure: Procedure
    target_directory: str
    deadline: Millis


class TriggerResponse(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """The operation is under way, durably where it is about a job."""

    request_id: str
    emberkeep: TriggerExtension | None = None


class OperationStatus(enum.Enum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: OperationStatus


class FailureCause(Kebab, frozen=True, kw_only=True):
    """``class``: what kind of failure; ``stack-trace``: what was wrong, where, and what to do.
    ``serialized-throwable``: the same for Flink's client, which reads it from there."""

    kind: str = field(name="class")
    stack_trace: str
    serialized_throwable: bytes = b""


class SavepointOutcome(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """Of a completed operation, one of the two."""

    location: str | None = None
    failure_cause: FailureCause | None = None


class SavepointStatus(Kebab, frozen=True, kw_only=True):
    """``operation``: null while it is in progress."""

    status: QueueStatus
    operation: SavepointOutcome | None
    emberkeep: ProcedureInfo


# --- savepoints by their directory ------------------------------------------------------------------------------------


class SavepointPath(Kebab, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which savepoint: its directory."""

    savepoint_path: str


class SavepointFiles(SavepointPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files of a savepoint: ``count`` ones of its manifest's list, from number ``first`` on; null: all that
    follow."""

    first: Annotated[int, Meta(ge=0)] = 0
    count: Annotated[int, Meta(ge=1)] | None = None


class DisposalStatus(Kebab, frozen=True, kw_only=True):
    """``operation``: null while it is in progress; its ``location`` is never set. ``left``: files in the savepoint's
    directory that are left because they are not its own, a few of many."""

    status: QueueStatus
    operation: SavepointOutcome | None
    left: tuple[str, ...] = ()


class SavepointEntry(Kebab, frozen=True, kw_only=True):
    """A savepoint that a job has made."""

    path: str
    job_id: JobId
    job_name: str
    job_status: JobStatus
    created: Millis
    trigger_id: str
    manifest_sha256: str


class SavepointList(Kebab, frozen=True, kw_only=True):
    """Those of running jobs and of jobs whose results are kept, newest first. Others are where they were made."""

    savepoints: list[SavepointEntry]


class SavepointFileInfo(Kebab, frozen=True, kw_only=True):
    path: str  # below the savepoint's directory
    size: int
    sha256: str


class SavepointQueryInfo(Kebab, frozen=True, kw_only=True):
    """A streaming query after batch ``batch-id`` (-1: none). ``watermark``: 0 where there is none yet.

    ``drained-from``: the last batch before those of a drain, -1 where it was not drained.
    """

    key: str
    name: str
    query_id: str
    sink: str
    output_mode: str
    target: str
    location: str
    batch_id: int
    offsets: list[str]
    watermark: Millis
    drained_from: int
    files: int
    size: int


class SavepointInfo(Kebab, frozen=True, kw_only=True):
    """What a savepoint's manifest says. ``functions``: names of the user functions whose state is in it."""

    path: str
    manifest_sha256: str
    job_id: JobId
    job_name: str
    attempt: int
    trigger_id: str
    procedure: Procedure
    created: Millis
    spark_version: str
    emberkeep_version: str
    size: int  # bytes
    queries: list[SavepointQueryInfo]
    files: list[SavepointFileInfo]
    functions: list[str]


class SavepointCheck(Kebab, frozen=True, kw_only=True):
    """``files`` and ``size``: of what was to be looked at. ``problems``: one sentence for each file that is missing or
    was changed, bounded; empty: all is as it was. ``warnings``: why a job here could fail to start from it all the
    same."""

    path: str
    files: int
    size: int
    problems: list[str]
    warnings: list[str] = msgspec.field(default_factory=list)

"""REST bodies about savepoints and stops, in the same form as in Flink's API; our own fields are below ``emberkeep``.

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
from emberkeep.protocol.rest import Duration, Kebab, Millis
from emberkeep.protocol.rest_jobs import ProcedureInfo

FormatType = Literal["CANONICAL", "NATIVE", "UNALIGNED"]


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop a job with a savepoint. ``drain``: first emit everything that event-time state holds back.

    ``targetDirectory``: directory in which the savepoint gets its own directory; null or absent: the configured one.
    ``triggerId``: chosen by the client (32 hex digits), so that it can repeat the request. ``timeout``: milliseconds
    that the running micro-batches may take to end; after that the operation fails and the job continues. Default:
    execution.stop.batch-timeout. ``formatType`` has no effect: there is one format.
    """

    drain: bool = False
    target_directory: str | None = field(default=None, name="targetDirectory")
    trigger_id: str | None = field(default=None, name="triggerId")
    timeout: Duration | None = None
    format_type: FormatType | None = field(default=None, name="formatType")


class SavepointRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a savepoint of a job. The job continues to run, or with ``cancel-job`` is suspended.

    The other fields are as in StopRequest.
    """

    target_directory: str | None = field(default=None, name="target-directory")
    cancel_job: bool = field(default=False, name="cancel-job")
    trigger_id: str | None = field(default=None, name="triggerId")
    timeout: Duration | None = None
    format_type: FormatType | None = field(default=None, name="formatType")


class TriggerExtension(Kebab, frozen=True, kw_only=True):
    """``target-directory``: the directory below which the savepoint gets its own.

    ``deadline``: time by which the running micro-batches must have ended.
    """

    procedure: Procedure
    target_directory: str
    deadline: Millis


class TriggerResponse(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """The operation has been accepted. If it concerns a job, it is recorded durably."""

    request_id: str
    emberkeep: TriggerExtension | None = None


class OperationStatus(enum.Enum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: OperationStatus


class FailureCause(Kebab, frozen=True, kw_only=True):
    """Why an operation failed.

    ``class``: kind of the failure. ``stack-trace``: what was wrong, where, and what to do about it.
    ``serialized-throwable``: the same text for Flink's client, which reads only this field.
    """

    kind: str = field(name="class")
    stack_trace: str
    serialized_throwable: bytes = b""


class SavepointOutcome(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a completed operation: exactly one of the two fields is set."""

    location: str | None = None
    failure_cause: FailureCause | None = None


class SavepointStatus(Kebab, frozen=True, kw_only=True):
    """State of a savepoint operation. ``operation``: null while it is in progress."""

    status: QueueStatus
    operation: SavepointOutcome | None
    emberkeep: ProcedureInfo


# --- savepoints by their directory ------------------------------------------------------------------------------------


class SavepointPath(Kebab, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A savepoint, by its directory."""

    savepoint_path: str


class SavepointFiles(SavepointPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some files of a savepoint: ``count`` files of its manifest's list, from number ``first`` on.

    ``count`` null: all that follow.
    """

    first: Annotated[int, Meta(ge=0)] = 0
    count: Annotated[int, Meta(ge=1)] | None = None


class DisposalStatus(Kebab, frozen=True, kw_only=True):
    """State of a disposal.

    ``operation``: null while it is in progress; its ``location`` is never set. ``left``: files that remain in the
    savepoint's directory because they are not part of the savepoint; only some if there are many.
    """

    status: QueueStatus
    operation: SavepointOutcome | None
    left: tuple[str, ...] = ()


class SavepointVerification(Kebab, frozen=True, kw_only=True):
    """What was found when all files of a savepoint were read and compared with its manifest.

    ``problems``: number of missing or changed files; 0: the savepoint is intact. ``problem``: the first, in words.
    ``warning``: why a job on this cluster could nevertheless fail to start from it.
    """

    time: Millis
    files: int
    size: int
    problems: int
    problem: str
    warning: str


class SavepointEntry(Kebab, frozen=True, kw_only=True):
    """A savepoint that a job has made.

    ``periodic``: the JobManager has made it by itself, and deletes it when newer ones exist. ``retired``: since when it
    is being deleted, so that no job can start from it; -1 if it is kept. ``kind``: what it was made for: `savepoint`
    (on request), `periodic`, `stop`, `drain` or `upgrade`; `unknown` if an earlier release recorded it. Later releases
    may have others. ``namespace``: its job's. ``size`` in bytes and ``duration``: -1 if an earlier release recorded it.
    ``job-started-from``: the savepoint that its job was started from. ``started``: the jobs that were started from it.
    ``verification``: the newest one since this JobManager leads; null if there was none.
    """

    path: str
    job_id: JobId
    job_name: str
    job_status: JobStatus
    created: Millis
    trigger_id: str
    manifest_sha256: str
    periodic: bool = False
    retired: Millis = -1
    kind: str = ""
    namespace: str = ""
    size: int = -1
    duration: Duration = -1
    job_started_from: str = ""
    started: list[JobId] = msgspec.field(default_factory=list)
    verification: SavepointVerification | None = None


class SavepointList(Kebab, frozen=True, kw_only=True):
    """Savepoints of running jobs and of jobs whose results are kept, newest first.

    Other savepoints can be found only in their directories. ``next``: `before` of the request for those that follow; ""
    if none do.
    """

    savepoints: list[SavepointEntry]
    next: str = ""


class SavepointFileInfo(Kebab, frozen=True, kw_only=True):
    path: str  # below the savepoint's directory
    size: int
    sha256: str


class SavepointQueryInfo(Kebab, frozen=True, kw_only=True):
    """A streaming query after batch ``batch-id`` (-1: none).

    ``watermark``: 0 before the first watermark. ``drained-from``: the last batch before those of a drain; -1 without a
    drain.
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
    """The contents of a savepoint's manifest. ``functions``: names of user functions with state in the savepoint.

    ``restore-command``: a line for a shell that starts the job from it as it was submitted, with variables in place of
    secret values; "" if the submission is no longer known, or the caller does not see the job.
    """

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
    restore_command: str = ""


class SavepointCheck(Kebab, frozen=True, kw_only=True):
    """Result of a check.

    ``files`` and ``size``: number and total size of the files to check. ``manifest-files``: number of the files of the
    whole savepoint; 0 if its manifest is damaged. ``problems``: one sentence for each missing or
    changed file, up to a limit; empty if the savepoint is intact. ``warnings``: why a job on this cluster could
    nevertheless fail to start from it.
    """

    path: str
    files: int
    size: int
    problems: list[str]
    warnings: list[str] = msgspec.field(default_factory=list)
    manifest_files: int = 0

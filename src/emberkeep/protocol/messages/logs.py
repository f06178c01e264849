"""Messages between JobManager and TaskManagers about logs."""

from __future__ import annotations

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.kept_logs.model import LogPiece, Position
from emberkeep.log_records.scan import Found, Search
from emberkeep.protocol.messages.root import Message


class KeepLog(Message, frozen=True, kw_only=True):
    """Store a piece of a log in the shared storage, where it outlives the TaskManager.

    Absent: the JobManager does not know the job. Conflict: logs are not stored, or another instance of the TaskManager
    is registered.
    """

    task_manager: TaskManagerId
    instance: InstanceId
    job_id: JobId
    attempt: int
    name: str  # of the file
    piece: LogPiece


class LogKept(Message, frozen=True, kw_only=True):
    """Reply to KeepLog: how far the log is stored now. The next piece begins there."""

    position: Position


class ListLogs(Message, frozen=True, kw_only=True):
    """List the logs of one job, or without a job all logs, including the TaskManager's own."""

    job_id: JobId | None


class LogView(Message, frozen=True, kw_only=True):
    """One log as ``protocol.rest_logs.LogInfo`` shows it. ``complete``: nothing more will be appended."""

    name: str  # the log's id on this TaskManager
    size: int  # bytes
    mtime: int  # Unix milliseconds
    kind: str
    complete: bool
    job_id: str = ""  # "" if the log belongs to no job; if so, the fields below are empty
    attempt: int = 0
    executor_id: str = ""


class LogsListed(Message, frozen=True, kw_only=True):
    logs: tuple[LogView, ...]


class UploadLog(Message, frozen=True, kw_only=True):
    """Store a piece of a log as a transient BLOB at the BLOB server.

    The requester releases the BLOB's reference once it has read the piece. A reference that was not released ends at a
    later request for the log. Absent: there is no such log, or it belongs to a job other than ``job_id``.
    """

    log_id: str
    offset: int  # bytes; negative: counted from the end
    limit: int  # bytes
    wait: float  # seconds to wait while there is nothing after ``offset``
    from_start: bool  # if ``offset`` is beyond the end, the log was replaced: send its first bytes
    job_id: JobId | None = None


class LogUploaded(Message, frozen=True, kw_only=True):
    """Reply to UploadLog: the piece begins at ``offset``. It is empty and has no BLOB if ``key`` is "".

    ``size``: bytes of the log now. ``complete``: the piece reaches the log's end, and nothing more will be appended.
    """

    offset: int
    size: int
    complete: bool
    owner: JobId
    key: str = ""
    holder: str = ""


class SearchLog(Message, frozen=True, kw_only=True):
    """Search a bounded part of a log. ``search.offset`` may be beyond the end.

    Absent: there is no such log, or it belongs to a job other than ``job_id``.
    """

    log_id: str
    search: Search
    wait: float  # seconds to wait while a search forwards has no bytes to examine
    job_id: JobId | None = None


class LogSearched(Message, frozen=True, kw_only=True):
    """Reply to SearchLog. ``size`` and ``complete`` as in LogUploaded."""

    found: Found
    size: int
    complete: bool

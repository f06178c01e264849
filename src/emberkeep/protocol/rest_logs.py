"""REST bodies and headers about logs."""

from __future__ import annotations

from msgspec import field

from emberkeep.protocol.rest import Kebab, Millis

LOG_OFFSET_HEADER = "X-Log-Offset"  # offset of the body's first byte; the next read starts at this + length of the body
LOG_SIZE_HEADER = "X-Log-Size"  # bytes of the log now
LOG_COMPLETE_HEADER = "X-Log-Complete"  # "true": nothing more will be appended


class LogInfo(Kebab, frozen=True, kw_only=True):
    """One log. ``name``: its id on the process that holds it. ``id``: its id in ``/jobs/{jid}/logs/{log_id}``.

    ``kind``: jobmanager, taskmanager, driver-stdout, driver-stderr, executor-stdout, executor-stderr. ``complete``:
    nothing more will be appended. The fields after ``complete`` are empty for logs that belong to no job.
    """

    name: str
    size: int  # bytes
    mtime: Millis
    kind: str
    complete: bool
    id: str = ""
    taskmanager_id: str = ""
    job_id: str = ""
    attempt: int = 0
    executor_id: str = ""


class LogList(Kebab, frozen=True, kw_only=True):
    """A list of logs.

    ``unreachable``: task managers that did not answer or are gone, so their logs are missing from the list.
    """

    logs: list[LogInfo]
    unreachable: list[str] = field(default_factory=list)

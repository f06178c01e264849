"""REST bodies and headers about logs."""

from __future__ import annotations

from msgspec import field

from emberkeep.protocol.rest import Kebab, Millis

LOG_OFFSET_HEADER = "X-Log-Offset"  # offset of the body's first byte; the next read starts at this + length of the body
LOG_SIZE_HEADER = "X-Log-Size"  # bytes of the log now
LOG_COMPLETE_HEADER = "X-Log-Complete"  # "true": nothing more will be appended
LOG_KEPT_UNTIL_HEADER = "X-Log-Kept-Until"  # Unix milliseconds: lines after this time are missing


class LogInfo(Kebab, frozen=True, kw_only=True):
    """One log. ``name``: its id on the process that holds it. ``id``: its id in ``/jobs/{jid}/logs/{log_id}``.

    ``kind``: jobmanager, taskmanager, driver-stdout, driver-stderr, executor-stdout, executor-stderr. ``complete``:
    nothing more will be appended. The fields after ``complete`` are empty for logs that belong to no job. ``kept``: the
    task manager does not have the log now, so it is read from the shared storage. ``kept-until``: lines after this time
    are not kept; 0: none is missing. ``problem``: why the kept log cannot be read now; its size and time are unknown
    then.
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
    kept: bool = False
    kept_until: Millis = 0
    problem: str = ""


class LogRecord(Kebab, frozen=True, kw_only=True):
    """One record of a log: a message with all its lines, such as a stack trace, or one line of other output.

    ``offset`` and ``size``: its bytes in the log. ``time``: its own, or that of the record before it; null if neither
    has one. ``level``: trace, debug, info, warn, error, fatal, or "" if it has none. ``log``: the id of its log among
    merged ones.
    """

    offset: int
    size: int
    time: Millis | None
    level: str
    text: str
    log: str = ""


class LogRecords(Kebab, frozen=True, kw_only=True):
    """Records that were found in the bytes from ``start`` to ``end`` of a log, in its order.

    The search continues from ``end``, or backwards from ``start``, even if nothing was found here. ``size``: bytes of
    the log now. ``complete``: nothing follows ``end``, and nothing more will be appended. ``kept-until``: the log is
    read from the shared storage, and lines after this time are not kept; 0: none is missing.
    """

    records: list[LogRecord]
    start: int
    end: int
    size: int
    complete: bool
    kept_until: Millis = 0


class MergedLogRecords(Kebab, frozen=True, kw_only=True):
    """Records of the driver and the executors of an attempt, by time. ``log`` of each: the ``id`` of its log.

    ``previous`` and ``next``: cursors, with which other requests continue in both directions. ``at-start``: nothing
    precedes these records. ``at-end``: nothing follows them now. ``complete``: nothing more will follow, as all logs
    have ended; the attempt may still start executors. ``unreachable``: task managers whose logs are missing.
    ``kept-until``: some of the logs are read from the shared storage, and lines after this time may be missing in them;
    0: no such log. ``problem``: why logs in the shared storage are missing.
    """

    attempt: int
    records: list[LogRecord]
    previous: str
    next: str
    at_start: bool
    at_end: bool
    complete: bool
    unreachable: list[str] = field(default_factory=list)
    kept_until: Millis = 0
    problem: str = ""


class LogList(Kebab, frozen=True, kw_only=True):
    """A list of logs.

    ``unreachable``: task managers that did not answer or are gone, so their logs are missing from the list, unless they
    are kept. ``problem``: why logs in the shared storage are missing from it.
    """

    logs: list[LogInfo]
    unreachable: list[str] = field(default_factory=list)
    problem: str = ""

"""Options of the logs of jobs and daemons."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import (
    choice,
    duration,
    integer,
    interval,
    size,
    size_of_at_least,
    size_or_none,
)
from emberkeep.base.configuration.values import Option, define

LOGS_KEEP_INTERVAL = define(
    Option(
        "logs.keep.interval",
        60.0,
        interval(1.0),
        "duration",
        "How often a task manager sends new lines of the logs of drivers and executors to the shared storage, where "
        "they can be read after the task manager or its node is gone. The rest of a log is sent as soon as its process "
        "has ended. 0: logs are kept by task managers only.",
    )
)
LOGS_KEPT_MAX_SIZE = define(
    Option(
        "logs.kept.max-size",
        64 * 1024**2,
        size,
        "size",
        "Maximum size of the logs of one job in the shared storage, compressed. Each file counts 16 KiB more than its "
        "size. If a job needs more, the oldest parts in the middle of its logs are deleted.",
    )
)
LOGS_KEPT_RETENTION = define(
    Option(
        "logs.kept.retention",
        30 * 86400.0,
        interval(60.0),
        "duration",
        "How long parts of logs are kept in the shared storage. Logs of jobs that are no longer listed are deleted "
        "earlier. If no new logs are stored and the leader changes often, they are kept for longer. 0: for as long as "
        "the job is listed.",
    )
)
LOG_RETENTION = define(
    Option(
        "taskmanager.log.retained-jobs",
        50,
        integer(0, 100_000),
        "integer",
        "Number of ended jobs whose logs are kept in a task manager's working directory. All that are recent enough "
        "for `taskmanager.log.min-age` are kept as well.",
    )
)
LOG_MIN_AGE = define(
    Option(
        "taskmanager.log.min-age",
        3600.0,
        duration,
        "duration",
        "A task manager keeps the logs of ended jobs that are at most this much older than the newest logs in its "
        "working directory, however many they are. Set less if many short jobs fill its disk.",
    )
)
LOG_OUTPUT_MAX_SIZE = define(
    Option(
        "taskmanager.log.max-size",
        1024**3,
        size_or_none(1024**2),
        "size",
        "Disk space that each output file (`*.stdout`, `*.stderr`) of a driver or executor may take while it runs. "
        "The task manager looks every second, and frees the oldest bytes but the first eighth; readers are told how "
        "many bytes are missing. Bytes that are not yet in the shared storage are freed last. The file system must "
        "support holes in files, as ext4, XFS, Btrfs and tmpfs do. At least 1m; 0: no bound.",
    )
)
LOG_LEVEL = define(
    Option(
        "log.level",
        "info",
        choice("debug", "info", "warning", "error"),
        "choice",
        "Lowest level of messages that are logged.",
    )
)
LOG_MAX_SIZE = define(
    Option(
        "log.max-size",
        32 * 1024**2,
        size_of_at_least(1024),
        "size",
        "Size at which a process rotates its own log file.",
    )
)
LOG_FILES = define(Option("log.files", 5, integer(1, 100), "integer", "Number of rotated log files that are kept."))

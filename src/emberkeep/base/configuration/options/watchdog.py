"""Options of the watchdog."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import boolean, decimal, duration, integer, size
from emberkeep.base.configuration.values import Option, define

WATCHDOG_COMMIT_FACTOR = define(
    Option(
        "watchdog.commit.factor",
        10.0,
        decimal(1.0, 1_000_000.0),
        "number",
        "The watchdog raises the alarm `no-commit` for a streaming query that works, but has committed no micro-batch "
        "for this many times the median duration of its newest batches.",
    )
)
WATCHDOG_COMMIT_MIN_TIME = define(
    Option(
        "watchdog.commit.min-time",
        300.0,
        duration,
        "duration",
        "Least time without a committed micro-batch before `no-commit` is raised, however short batches are.",
    )
)
WATCHDOG_COMMIT_FIRST_TIME = define(
    Option(
        "watchdog.commit.first-time",
        1800.0,
        duration,
        "duration",
        "Least time without a committed micro-batch before `no-commit` is raised for the first batch of an attempt, "
        "and while the durations of fewer than 3 batches are known. A first batch may have much to catch up with.",
    )
)
WATCHDOG_BACKLOG_GROWING_FOR = define(
    Option(
        "watchdog.backlog.growing-for",
        900.0,
        duration,
        "duration",
        "The watchdog raises the alarm `backlog` for a streaming query whose backlog has at least doubled, and for "
        "this time never came back to the value where the growth began. It judges rows, files, bytes and time, as the "
        "sources count. A query whose backlog is unknown has no such alarm.",
    )
)
WATCHDOG_BACKLOG_MIN_ROWS = define(
    Option(
        "watchdog.backlog.min-rows",
        10_000,
        integer(1, 2**62),
        "integer",
        "A backlog of fewer rows never raises the alarm `backlog`.",
    )
)
WATCHDOG_BACKLOG_MIN_FILES = define(
    Option(
        "watchdog.backlog.min-files",
        100,
        integer(1, 2**62),
        "integer",
        "A backlog of fewer files (`numFilesOutstanding`) never raises the alarm `backlog`.",
    )
)
WATCHDOG_BACKLOG_MIN_SIZE = define(
    Option(
        "watchdog.backlog.min-size",
        1024**3,
        size,
        "size",
        "A backlog of fewer bytes (`numBytesOutstanding`) never raises the alarm `backlog`.",
    )
)
WATCHDOG_BACKLOG_MIN_TIME = define(
    Option(
        "watchdog.backlog.min-time",
        300.0,
        duration,
        "duration",
        "A source that is behind by less time (`maxMsBehindLatest`) never raises the alarm `backlog`.",
    )
)
WATCHDOG_STATE_MAX_ROWS = define(
    Option(
        "watchdog.state.max-rows",
        0,
        integer(0, 2**62),
        "integer",
        "The watchdog raises the alarm `state` for a streaming query with more rows in its state. 0: no bound.",
    )
)
WATCHDOG_STATE_MAX_SIZE = define(
    Option(
        "watchdog.state.max-size",
        0,
        size,
        "size",
        "The watchdog raises the alarm `state` for a streaming query whose state takes more memory on its executors "
        "together, as Spark reports it (`memoryUsedBytes`). It may be set beside `watchdog.state.max-rows`. 0: no "
        "bound.",
    )
)
WATCHDOG_RESTARTS_MAX = define(
    Option(
        "watchdog.restarts.max",
        5,
        integer(1, 1000),
        "integer",
        "The watchdog raises the alarm `restarts` for a job whose driver was restarted more often than this within "
        "`watchdog.restarts.window`. Moves to other nodes do not count.",
    )
)
WATCHDOG_RESTARTS_WINDOW = define(
    Option("watchdog.restarts.window", 600.0, duration, "duration", "Time for which a restart counts.")
)
WATCHDOG_RESTART = define(
    Option(
        "watchdog.restart",
        False,
        boolean,
        "boolean",
        "Whether the watchdog restarts the driver of a job with the alarm `no-commit`. The restart strategy decides "
        "as after any lost driver: it may end the job instead.",
    )
)
WATCHDOG_RESTART_PAUSE = define(
    Option(
        "watchdog.restart.pause",
        1800.0,
        duration,
        "duration",
        "Least time between two restarts of a job by the watchdog.",
    )
)

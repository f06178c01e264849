"""Options of stops and savepoints."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import duration, integer, interval, text
from emberkeep.base.configuration.values import Option, define

STOP_SCRIPT_TIMEOUT = define(
    Option(
        "execution.stop.script-timeout",
        60.0,
        duration,
        "duration",
        "How long the script of a suspended or drained job may run after its queries have ended. After that time its "
        "driver gets SIGTERM. The job is FINISHED either way.",
    )
)
STOP_BATCH_TIMEOUT = define(
    Option(
        "execution.stop.batch-timeout",
        600.0,
        duration,
        "duration",
        "How long running micro-batches may take to end after a savepoint or stop was requested. After that time the "
        "request fails and the job continues.",
    )
)
STOP_FUNCTION_TIMEOUT = define(
    Option(
        "execution.stop.function-timeout",
        600.0,
        duration,
        "duration",
        "How long a user function may take for one call at a savepoint or at the end of the job. The limit "
        "holds for each function in the driver, and for all instances on executors together. After that time a "
        "savepoint or stop fails and the job continues; at the end of its sources, the attempt fails.",
    )
)
STOP_SAVEPOINT_TIMEOUT = define(
    Option(
        "execution.stop.savepoint-timeout",
        3600.0,
        duration,
        "duration",
        "How long each step of a savepoint or stop may take once the micro-batches have ended: the planned "
        "batches of a drain, a call of all user functions, the copy, the restart of queries. After that time the "
        "request fails and the job continues. If the step cannot be undone, the attempt ends and the next "
        "one continues.",
    )
)
SAVEPOINT_DIRECTORY = define(
    Option(
        "execution.checkpointing.savepoint-dir",
        "",
        text,
        "URI",
        "Directory, or prefix in an object store, in which each savepoint gets a directory of its own. "
        "Empty: `savepoints` in high-availability.storageDir.",
        deprecated_keys=("state.savepoints.dir",),
    )
)
SAVEPOINT_INTERVAL = define(
    Option(
        "execution.savepoint.interval",
        0.0,
        interval(1.0),
        "duration",
        "Time from one periodic savepoint of a streaming job to the next. The JobManager makes them by itself. "
        "0: none.",
    )
)
SAVEPOINTS_RETAINED = define(
    Option(
        "execution.savepoint.retained",
        10,
        integer(1, 100),
        "integer",
        "Number of periodic savepoints that are kept of a job that has not ended. The JobManager deletes older ones.",
    )
)
SAVEPOINT_MAX_AGE = define(
    Option(
        "execution.savepoint.max-age",
        0.0,
        duration,
        "duration",
        "Age at which a periodic savepoint of a job that has not ended is deleted. The newest one is kept at any age. "
        "A time without savepoints counts for two intervals at most. 0: any age.",
    )
)

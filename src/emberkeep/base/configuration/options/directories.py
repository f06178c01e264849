"""Options of directories: the state directory, the storage, and how long data stays there."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import duration, text
from emberkeep.base.configuration.values import Option, define

STATE_DIRECTORY = define(
    Option(
        "emberkeep.state-dir",
        "",
        text,
        "path",
        "Directory in which a local cluster keeps its configuration, token, stores, working directories and "
        "logs. Empty: $XDG_STATE_HOME/emberkeep, else ~/.local/state/emberkeep.",
    )
)
STORAGE_DIRECTORY = define(
    Option(
        "high-availability.storageDir",
        "",
        text,
        "path",
        "Durable storage that all processes share, for job graphs, job files and default checkpoints. An "
        "absolute path, or file:///path; object stores are refused. Without ZooKeeper, one storage belongs "
        "to one cluster; any other cluster is refused. Empty: `storage` below the state directory.",
    )
)
UNKNOWN_DATA_DELAY = define(
    Option(
        "high-availability.storage.unknown-delay",
        7 * 86400.0,
        duration,
        "duration",
        "How long checkpoints, BLOBs and graphs of jobs that the job store does not know are kept. They are "
        "marked first, and deleted after this time unless the job store knows the job again.",
    )
)
ENDED_DATA_DELAY = define(
    Option(
        "high-availability.storage.ended-delay",
        600.0,
        duration,
        "duration",
        "How long default checkpoints are kept after a job has FINISHED or was CANCELED. Those of a job that "
        "has FAILED stay as long as its result, then for `high-availability.storage.unknown-delay`.",
    )
)
EVENT_LOG_DELAY = define(
    Option(
        "high-availability.storage.event-log-delay",
        7 * 86400.0,
        duration,
        "duration",
        "How long the event logs of a job, from which its Spark UI is shown, and the progress history of its "
        "queries are kept after the job has FINISHED or was CANCELED. Those of a job that has FAILED stay as long as "
        "its result, then for `high-availability.storage.unknown-delay`.",
    )
)
DAMAGED_DATA_DELAY = define(
    Option(
        "high-availability.storage.damaged-delay",
        30 * 86400.0,
        duration,
        "duration",
        "How long a job's data is kept if the job has FAILED because its graph or handle was damaged. "
        "In the last tenth of this time, the log warns once a day of the deletion.",
    )
)
WORKING_DIRECTORY = define(
    Option(
        "process.taskmanager.working-dir",
        "",
        text,
        "path",
        "Working directory of a task manager, on a volume that survives restarts. Empty: `taskmanagers/<id>` "
        "below the state directory.",
        deprecated_keys=("process.working-dir",),
    )
)

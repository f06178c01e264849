"""Options of a job, its driver and its executors."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import boolean, duration, integer, priority
from emberkeep.base.configuration.values import Option, define

CANCELLATION_TIMEOUT = define(
    Option(
        "task.cancellation.timeout",
        10.0,
        duration,
        "duration",
        "How long a driver may take to end after SIGTERM before all processes of its session are killed.",
    )
)
PRIORITY = define(
    Option(
        "job.priority",
        0,
        priority,
        "priority",
        "Jobs with a higher priority come first when slots or driver places are free: `low` (-100), `normal` (0), "
        "`high` (100), or a number from -1000 to 1000. Each job still gets a first slot before any job gets a second "
        "one. Elastic jobs with a lower priority in the same namespace give executors back "
        "(`slotmanager.preemption`).",
    )
)
GANG = define(
    Option(
        "job.gang",
        False,
        boolean,
        "boolean",
        "Whether the job gets all its executors at once or none, so that it holds no slots while it waits for others: "
        "for barrier stages and distributed training. Executors that are lost later are replaced one by one.",
    )
)
OPENLINEAGE = define(
    Option(
        "execution.openlineage",
        False,
        boolean,
        "boolean",
        "Whether OpenLineage's listener runs in the job's Spark, with the job as the parent of its runs. The job "
        "brings the listener's jar, and `spark.openlineage.*` says where it reports to. Without the jar the job fails "
        "at its start.",
    )
)
EVENT_LOG_ENABLED = define(
    Option(
        "execution.event-log.enabled",
        True,
        boolean,
        "boolean",
        "Whether drivers write Spark's event log into the job's directory of checkpoints, so that the Spark UI of an "
        "attempt can be shown after its end. Settings of the job for `spark.eventLog.*` override it.",
    )
)
EXECUTOR_FAILURES = define(
    Option(
        "executor.max-failures",
        10,
        integer(1, 100_000),
        "integer",
        "An attempt fails if there are more executor failures than this within executor.failure-window.",
    )
)
EXECUTOR_FAILURE_WINDOW = define(
    Option(
        "executor.failure-window",
        600.0,
        duration,
        "duration",
        "Time for which a failure counts towards executor.max-failures.",
    )
)
EXECUTOR_BACKOFF_INITIAL = define(
    Option(
        "executor.backoff.initial",
        0.5,
        duration,
        "duration",
        "Pause before a slot is requested again after the second loss of an executor in the window; the first loss has "
        "no pause. Doubles with each further loss.",
    )
)
EXECUTOR_BACKOFF_MAX = define(
    Option(
        "executor.backoff.max",
        30.0,
        duration,
        "duration",
        "Longest pause before a slot is requested again after an executor failed.",
    )
)
EXECUTOR_START_TIMEOUT = define(
    Option(
        "executor.start-timeout",
        120.0,
        duration,
        "duration",
        "How long a requested executor may take to register with Spark. After that time it is terminated and replaced.",
    )
)
DRIVER_LEASE = define(
    Option(
        "job.driver.lease-timeout",
        20.0,
        duration,
        "duration",
        "How long a driver whose TaskManager is lost may be silent before it counts as lost as well.",
    )
)
DRIVER_START_TIMEOUT = define(
    Option(
        "job.driver.start-timeout",
        120.0,
        duration,
        "duration",
        "How long a driver may take to register after its start was requested. After that time it is terminated and "
        "counts as lost.",
    )
)
DRIVER_START_ATTEMPTS = define(
    Option(
        "job.driver.start-attempts",
        5,
        integer(0, 1_000_000),
        "integer",
        "After this many attempts in a row whose driver could not be started, each time for the same reason "
        "(such as a failing import or a missing Java), the job fails, whatever the restart strategy. The "
        "attempts use different nodes: the job fails only when the reason has occurred on two nodes, or when no "
        "other node could take the driver. 0: no limit.",
    )
)

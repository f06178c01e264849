"""Options of streams whose number of executors follows their load."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import boolean, decimal, duration, integer
from emberkeep.base.configuration.values import Option, define

AUTOSCALE = define(
    Option(
        "execution.autoscale.enabled",
        False,
        boolean,
        "boolean",
        "Whether the number of a job's executors follows the load of its streaming queries.",
    )
)
AUTOSCALE_MIN = define(
    Option(
        "execution.autoscale.min-executors",
        1,
        integer(1, 100_000),
        "integer",
        "Autoscaling never goes below this number of executors.",
    )
)
AUTOSCALE_MAX = define(
    Option(
        "execution.autoscale.max-executors",
        0,
        integer(0, 100_000),
        "integer",
        "Autoscaling never goes above this number of executors. 0: the number that the job asks for, with which it "
        "begins.",
    )
)
AUTOSCALE_TARGET = define(
    Option(
        "execution.autoscale.target-utilization",
        0.7,
        decimal(0.05, 1.0),
        "number",
        "Share of its trigger's interval in which a streaming query is to work. Executors are added above 1.1 times "
        "this share, and removed as long as it stays below 0.8 times this share.",
    )
)
AUTOSCALE_BATCH_TIME = define(
    Option(
        "execution.autoscale.batch-time",
        10.0,
        duration,
        "duration",
        "Stands for the interval of a trigger that has none: how long a micro-batch may take.",
    )
)
AUTOSCALE_CATCH_UP = define(
    Option(
        "execution.autoscale.catch-up-time",
        300.0,
        duration,
        "duration",
        "Time in which the backlog of a streaming query is to be read.",
    )
)
AUTOSCALE_UP_PAUSE = define(
    Option(
        "execution.autoscale.scale-up-pause",
        60.0,
        duration,
        "duration",
        "Least time from a change of the number of executors until autoscaling adds executors.",
    )
)
AUTOSCALE_DOWN_PAUSE = define(
    Option(
        "execution.autoscale.scale-down-pause",
        600.0,
        duration,
        "duration",
        "Least time from a change of the number of executors until autoscaling removes executors, all of which must "
        "have been superfluous for this time.",
    )
)

"""Options of restart strategies."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import choice, decimal, duration, integer
from emberkeep.base.configuration.values import Option, define

RESTART_STRATEGY = define(
    Option(
        "restart-strategy.type",
        "exponential-delay",
        choice(
            "none",
            "off",
            "disable",
            "fixed-delay",
            "fixeddelay",
            "exponential-delay",
            "exponentialdelay",
            "failure-rate",
            "failurerate",
        ),
        "choice",
        "Whether and when a lost driver is started again: none, fixed-delay, exponential-delay or "
        "failure-rate. The other values are Flink's aliases.",
        deprecated_keys=("restart-strategy",),
    )
)
RESTART_ON = define(
    Option(
        "restart-strategy.restart-on",
        "lost",
        choice("lost", "any"),
        "choice",
        "`lost`: restart only after the driver was lost (process killed, JVM died, node lost, start failed); "
        "an exception or exit code of the script ends the job. `any`: restart after an exception or exit code, too.",
    )
)
FIXED_ATTEMPTS = define(
    Option(
        "restart-strategy.fixed-delay.attempts", 3, integer(0, 1_000_000), "integer", "Restarts before the job fails."
    )
)
FIXED_DELAY = define(
    Option("restart-strategy.fixed-delay.delay", 1.0, duration, "duration", "Pause before each restart.")
)
EXPONENTIAL_INITIAL = define(
    Option(
        "restart-strategy.exponential-delay.initial-backoff",
        1.0,
        duration,
        "duration",
        "Pause before the second restart in a row. The first restart has no pause.",
    )
)
EXPONENTIAL_MAX = define(
    Option(
        "restart-strategy.exponential-delay.max-backoff", 60.0, duration, "duration", "Longest pause before a restart."
    )
)
EXPONENTIAL_MULTIPLIER = define(
    Option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        1.5,
        decimal(1.0, 100.0),
        "number",
        "Factor by which the pause grows with each restart.",
    )
)
EXPONENTIAL_RESET = define(
    Option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        3600.0,
        duration,
        "duration",
        "How long an attempt must run to reset the pause and the number of restarts.",
    )
)
EXPONENTIAL_JITTER = define(
    Option(
        "restart-strategy.exponential-delay.jitter-factor",
        0.1,
        decimal(0.0, 1.0),
        "number",
        "Random part added to or subtracted from each pause, as a share of it.",
    )
)
EXPONENTIAL_ATTEMPTS = define(
    Option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        20,
        integer(0, 1_000_000),
        "integer",
        "Restarts in a row, without a reset of the pause, before the job fails. 0: no limit.",
    )
)
RATE_MAX = define(
    Option(
        "restart-strategy.failure-rate.max-failures-per-interval",
        1,
        integer(1, 1_000_000),
        "integer",
        "The job fails if there are more failures than this within the interval.",
    )
)
RATE_INTERVAL = define(
    Option(
        "restart-strategy.failure-rate.failure-rate-interval",
        60.0,
        duration,
        "duration",
        "Interval in which failures are counted.",
    )
)
RATE_DELAY = define(
    Option("restart-strategy.failure-rate.delay", 1.0, duration, "duration", "Pause before each restart.")
)

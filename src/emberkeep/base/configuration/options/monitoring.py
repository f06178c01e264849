"""Options of metrics and notifications."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import SOME_TIME, duration, integer, text
from emberkeep.base.configuration.values import Option, define

WEBHOOK_URL = define(
    Option(
        "notifications.webhook.url",
        "",
        text,
        "URL",
        "Address to which the leader sends events of jobs, as JSON by POST; https, or http on this machine. Empty: "
        "nothing is sent. It is hidden where settings are shown, because such addresses often contain a secret.",
        secret=True,
    )
)
WEBHOOK_SECRET_FILE = define(
    Option(
        "notifications.webhook.secret-file",
        "",
        text,
        "path",
        "File (mode 0600) with the secret by which the receiver verifies the signature of each request; needed "
        "with `notifications.webhook.url`.",
    )
)
WEBHOOK_EVENTS = define(
    Option(
        "notifications.webhook.events",
        "alarm-raised,alarm-cleared,job-failed",
        text,
        "list",
        "Events that are sent, separated by commas: `alarm-raised`, `alarm-cleared`, `job-restarting`, "
        "`job-finished`, `job-canceled`, `job-failed`.",
    )
)
WEBHOOK_TIMEOUT = define(
    Option(
        "notifications.webhook.timeout",
        10.0,
        SOME_TIME,
        "duration",
        "How long the receiver may take to answer. After that time the event is sent again.",
    )
)
WEBHOOK_RETRY_FOR = define(
    Option(
        "notifications.webhook.retry-for",
        3600.0,
        duration,
        "duration",
        "How long an event that could not be delivered is repeated, after pauses of up to a minute, before it is "
        "dropped.",
    )
)
WEBHOOK_QUEUE = define(
    Option(
        "notifications.webhook.queue-size",
        1000,
        integer(1, 100_000),
        "integer",
        "Number of events that may wait for the receiver. If there are more, the oldest are dropped.",
    )
)
WEBHOOK_CA_FILE = define(
    Option(
        "notifications.webhook.ca-file",
        "",
        text,
        "path",
        "PEM file with the CAs that may sign the receiver's certificate. Empty: the system's CAs.",
    )
)
METRICS_MAX_JOBS = define(
    Option(
        "metrics.max-jobs",
        500,
        integer(0, 100_000),
        "integer",
        "Number of jobs that have series of their own at `/metrics`. If more run, those that were submitted last "
        "have none, and `emberkeep_metrics_left_out` counts them.",
    )
)
METRICS_MAX_QUERIES = define(
    Option(
        "metrics.max-queries",
        1000,
        integer(0, 100_000),
        "integer",
        "Number of streaming queries, of all jobs together, that have series of their own at `/metrics`.",
    )
)
METRICS_OTLP_ENDPOINT = define(
    Option(
        "metrics.otlp.endpoint",
        "",
        text,
        "URL",
        "Address of an OpenTelemetry collector (OTLP by HTTP), such as `https://collector:4318`, to which the leader "
        "pushes what `/metrics` shows; https, or http on this machine. Without a path, `/v1/metrics` is added. "
        "It needs `pip install 'emberkeep[opentelemetry]'`. Empty: nothing is pushed.",
    )
)
METRICS_OTLP_INTERVAL = define(
    Option(
        "metrics.otlp.interval",
        30.0,
        duration,
        "duration",
        "Time between two pushes to the OpenTelemetry collector, at least 1 s.",
    )
)
METRICS_OTLP_HEADERS_FILE = define(
    Option(
        "metrics.otlp.headers-file",
        "",
        text,
        "path",
        "File (mode 0600) with headers for the OpenTelemetry collector, one `Name: value` a line, for example with a "
        "token. Empty: those in the environment variable `OTEL_EXPORTER_OTLP_HEADERS`, if any.",
    )
)
METRICS_OTLP_CA_FILE = define(
    Option(
        "metrics.otlp.ca-file",
        "",
        text,
        "path",
        "PEM file with the CAs that may sign the OpenTelemetry collector's certificate. Empty: those that "
        "`OTEL_EXPORTER_OTLP_CERTIFICATE` names, else those of the Python package certifi.",
    )
)

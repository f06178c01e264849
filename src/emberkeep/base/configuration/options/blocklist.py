"""Options of the blocklist of nodes: evacuation, detection, and how long entries stay."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import boolean, decimal, duration, integer
from emberkeep.base.configuration.values import Option, define

EVACUATION_TIMEOUT = define(
    Option(
        "blocklist.evacuation.timeout",
        300.0,
        duration,
        "duration",
        "How long an executor on an evacuated node may take until a replacement runs, its blocks are handed "
        "over and it has ended. After that time it is terminated, and blocks that it still held are computed again. "
        "A streaming driver on the node may take as long to stop between two micro-batches. After that time it "
        "is restarted elsewhere, without the latest state of its functions.",
    )
)
VACANT_TIMEOUT = define(
    Option(
        "blocklist.vacant-timeout",
        86_400.0,
        duration,
        "duration",
        "How long jobs wait for a blocked node or task manager that is not registered, because it may come back and be "
        "unblocked. After that, `slot.request.timeout` applies to a job that nothing else could give what it lacks. "
        "0: for as long as it is blocked.",
    )
)
BLOCKLIST_ACCEPTS_LOSS = define(
    Option(
        "blocklist.accept-loss",
        False,
        boolean,
        "boolean",
        "Start with an empty blocklist if the JobManager cannot read its record. Without it, the JobManager "
        "places nothing new until the drivers of running jobs have reported the list. The unreadable record "
        "is kept.",
    )
)
DETECTION = define(
    Option(
        "blocklist.detection.enabled",
        False,
        boolean,
        "boolean",
        "Whether a node is blocked when processes of several jobs fail there in a way that points to the node "
        "(no space, I/O errors, processes that cannot be started) while these jobs work elsewhere.",
    )
)
DETECTION_JOBS = define(
    Option(
        "blocklist.detection.jobs",
        3,
        integer(2, 1000),
        "integer",
        "Number of jobs that must fail on a node before it is blocked.",
    )
)
DETECTION_WINDOW = define(
    Option("blocklist.detection.window", 600.0, duration, "duration", "Time for which a failure counts.")
)
DETECTION_PROOF = define(
    Option(
        "blocklist.detection.proof-time",
        30.0,
        duration,
        "duration",
        "How long a job's executors must run on another node to show that the job works there. A job that "
        "has succeeded also counts as working on the nodes where it ran last. The failures of a job that "
        "works nowhere do not count against a node.",
    )
)
DETECTION_MAX_SHARE = define(
    Option(
        "blocklist.detection.max-share",
        0.2,
        decimal(0.0, 1.0),
        "number",
        "Detection blocks a node only if at most this share of all nodes is blocked afterwards, including "
        "those that operators have blocked. Blocked nodes count even while they are away.",
    )
)
DETECTION_DURATION = define(
    Option("blocklist.detection.duration", 1800.0, duration, "duration", "How long a detected node stays blocked.")
)
REPORT_EXCLUDED = define(
    Option(
        "blocklist.report-excluded-nodes",
        False,
        boolean,
        "boolean",
        "Whether a job reports a node from which Spark excludes all its executors for repeated task failures "
        "(spark.excludeOnFailure.enabled), while the job works elsewhere. The node is then blocked for all "
        "jobs, for blocklist.detection.duration, unless more than blocklist.detection.max-share of the job's "
        "nodes, or of all nodes, would be blocked. Set it on JobManagers and task managers.",
    )
)
DETECTION_RESPECT = define(
    Option(
        "blocklist.detection.pause-after-unblock",
        3600.0,
        duration,
        "duration",
        "How long detection ignores a node after an operator has unblocked it.",
    )
)

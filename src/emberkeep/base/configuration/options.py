"""All configuration options. docs/configuration.md is generated from them.

Where Flink has the option, it has Flink's name.
"""

from __future__ import annotations

from emberkeep.base.configuration.option_types import boolean, choice, decimal, duration, integer, size, text
from emberkeep.base.configuration.values import Option, define

PORT = integer(0, 65535)

# --- directories ----------------------------------------------------------------------------------------------------

STATE_DIRECTORY = define(
    Option(
        "emberkeep.state-dir",
        "",
        text,
        "path",
        "Directory below which a local cluster keeps everything: configuration, token, stores, working directories, "
        "logs. Empty: $XDG_STATE_HOME/emberkeep, else ~/.local/state/emberkeep.",
    )
)
STORAGE_DIRECTORY = define(
    Option(
        "high-availability.storageDir",
        "",
        text,
        "path",
        "Durable storage shared by all processes: job graphs, artefacts, default checkpoints. An absolute path, or "
        "file:///path; object stores are refused. Without ZooKeeper of one cluster alone: it is refused to another "
        "one. Empty: `storage` below the state directory.",
    )
)
UNKNOWN_DATA_DELAY = define(
    Option(
        "high-availability.storage.unknown-delay",
        7 * 86400.0,
        duration,
        "duration",
        "Checkpoints, BLOBs and graphs of jobs that the job store does not know are marked, and deleted after this "
        "time unless the job is known again.",
    )
)
ENDED_DATA_DELAY = define(
    Option(
        "high-availability.storage.ended-delay",
        600.0,
        duration,
        "duration",
        "Default checkpoints of a job that has FINISHED or was CANCELED are deleted after this time. Those of a job "
        "that has FAILED stay as long as its result, then for `high-availability.storage.unknown-delay`.",
    )
)
DAMAGED_DATA_DELAY = define(
    Option(
        "high-availability.storage.damaged-delay",
        30 * 86400.0,
        duration,
        "duration",
        "Of a job that has FAILED because its graph or handle was damaged, the damaged bytes are kept for this time. "
        "The log warns of the end once a day for the last tenth of it.",
    )
)
WORKING_DIRECTORY = define(
    Option(
        "process.taskmanager.working-dir",
        "",
        text,
        "path",
        "Working directory of a task manager; put it on a volume that survives. Empty: `taskmanagers/<id>` below the "
        "state directory.",
        deprecated_keys=("process.working-dir",),
    )
)

# --- REST, RPC and security -----------------------------------------------------------------------------------------

REST_ADDRESS = define(
    Option("rest.address", "127.0.0.1", text, "address", "Host name or address at which clients reach the JobManager.")
)
REST_PORT = define(
    Option("rest.port", 8081, PORT, "port", "Port of the JobManager for REST, web page and RPC. 0: any free port.")
)
REST_BIND_ADDRESS = define(
    Option(
        "rest.bind-address",
        "127.0.0.1",
        text,
        "address",
        "Address that the JobManager binds. Another than loopback is refused unless security.token-file is set.",
    )
)
TOKEN_FILE = define(
    Option(
        "security.token-file",
        "",
        text,
        "path",
        "File (mode 0600) with the bearer token of REST and RPC. Empty: `token` below the state directory, made at the "
        "first start.",
    )
)
ALLOWED_HOSTS = define(
    Option(
        "security.allowed-hosts",
        "",
        text,
        "list",
        "Further values of the Host header that the JobManager answers to, separated by commas, beside rest.address "
        "and loopback names.",
    )
)

# --- BLOBs: artefacts, off-loaded messages, logs ----------------------------------------------------------------------

BLOB_DIRECTORY = define(
    Option(
        "blob.storage.directory",
        "",
        text,
        "path",
        "Local store of a JobManager's BLOB server or a task manager's BLOB cache. Empty: `blobs` below its own "
        "directory. Processes on one machine need one each.",
    )
)
BLOB_HA_STORAGE = define(
    Option(
        "blob.storage.ha-directory",
        "",
        text,
        "path",
        "Where permanent BLOBs are kept for recovery: a directory that all machines share, or s3://bucket/prefix, "
        "gs://bucket/prefix, az://container/prefix (these need `pip install 'emberkeep[object-store]'` and take their "
        "credentials from the environment). Empty: `blobs` below "
        "high-availability.storageDir.",
    )
)
BLOB_RETENTION = define(
    Option(
        "blob.retention.interval",
        1800.0,
        duration,
        "duration",
        "Pause between two staged clean-ups. An unreferenced BLOB lives one to two of them.",
        deprecated_keys=("library-cache-manager.cleanup.interval",),
    )
)
BLOB_MAX_SIZE = define(
    Option(
        "blob.max-size",
        4 * 1024**3,
        size,
        "size",
        "Largest BLOB that may be stored.",
        deprecated_keys=("web.upload.max-size",),
    )
)
BLOB_DIRECT_DOWNLOADS = define(
    Option(
        "blob.server.direct-downloads",
        4,
        integer(1, 100_000),
        "integer",
        "Downloads of one BLOB that the BLOB server serves itself at a time; more are sent on to caches that have it.",
    )
)
OFFLOAD_MIN_SIZE = define(
    Option(
        "rpc.offload.min-size",
        1024**2,
        size,
        "size",
        "A part of an RPC message that is larger travels as a BLOB, once for all its receivers.",
    )
)

# --- high availability ------------------------------------------------------------------------------------------------

HA_TYPE = define(
    Option(
        "high-availability.type",
        "embedded",
        choice("embedded", "zookeeper"),
        "choice",
        "`embedded`: one JobManager keeps its jobs in a local file. `zookeeper`: of several JobManagers one leads.",
        deprecated_keys=("high-availability",),
    )
)
HA_CLUSTER_ID = define(
    Option(
        "high-availability.cluster-id",
        "default",
        text,
        "id",
        "Name of the cluster: clusters that share a ZooKeeper need one each.",
    )
)
ZOOKEEPER_QUORUM = define(
    Option(
        "high-availability.zookeeper.quorum",
        "",
        text,
        "list",
        "host:port of each ZooKeeper server, separated by commas. ZooKeeper 3.6 or newer.",
    )
)
ZOOKEEPER_ROOT = define(
    Option(
        "high-availability.zookeeper.path.root",
        "/emberkeep",
        text,
        "path",
        "ZooKeeper node below which each cluster has its own.",
    )
)
ZOOKEEPER_SESSION_TIMEOUT = define(
    Option(
        "high-availability.zookeeper.client.session-timeout",
        10.0,
        duration,
        "duration",
        "Silence after which ZooKeeper takes the leader of a dead machine for gone. The servers bound it to 2 to 20 of "
        "their ticks.",
    )
)
ZOOKEEPER_CONNECTION_TIMEOUT = define(
    Option(
        "high-availability.zookeeper.client.connection-timeout",
        15.0,
        duration,
        "duration",
        "How long one operation may take before it counts as not answered.",
    )
)
ZOOKEEPER_AUTHORIZATION = define(
    Option(
        "high-availability.zookeeper.client.authorization",
        "",
        text,
        "text",
        "Who this cluster is to ZooKeeper: `digest:user:password`. Set it in the configuration file: arguments of a "
        "process can be read by others.",
        secret=True,
    )
)
ZOOKEEPER_ACL = define(
    Option(
        "high-availability.zookeeper.client.acl",
        "open",
        choice("open", "creator"),
        "choice",
        "Who may read and change this cluster's nodes: everybody, or only who has the same "
        "high-availability.zookeeper.client.authorization.",
    )
)

# --- JobManagers ----------------------------------------------------------------------------------------------------

JOB_MANAGER_ID = define(
    Option(
        "jobmanager.resource-id",
        "",
        text,
        "id",
        "Name of a JobManager among several that share a state directory: each keeps its logs and BLOBs below "
        "`jobmanagers/<id>`.",
    )
)

# --- task managers --------------------------------------------------------------------------------------------------

JOB_MANAGER_ADDRESS = define(
    Option(
        "jobmanager.rpc.address",
        "",
        text,
        "address",
        "host:port of the JobManager that a task manager registers at. Empty: rest.address and rest.port.",
    )
)
TASK_MANAGER_ID = define(
    Option(
        "taskmanager.resource-id",
        "",
        text,
        "id",
        "Stable id of a task manager, unique in the cluster. Empty: the one that its working directory belongs to; on "
        "a new one `tm-` and taskmanager.host.",
    )
)
TASK_MANAGER_HOST = define(
    Option(
        "taskmanager.host",
        "127.0.0.1",
        text,
        "address",
        "Address that a task manager, its drivers and its executors bind to and are reached at.",
    )
)
TASK_MANAGER_NODE = define(
    Option("taskmanager.node-id", "", text, "id", "Name of the machine it stands on. Empty: taskmanager.host.")
)
TASK_MANAGER_PORT = define(
    Option("taskmanager.rpc.port", 0, PORT, "port", "Port of a task manager's RPC. 0: any free port.")
)
SLOTS = define(
    Option("taskmanager.numberOfTaskSlots", 2, integer(0, 1024), "integer", "Slots (executors) of a task manager.")
)
DRIVER_PLACES = define(
    Option("taskmanager.driver-places", 4, integer(0, 1024), "integer", "Drivers that may run on a task manager.")
)
CORES = define(
    Option(
        "taskmanager.cpu.cores", 0, integer(0, 4096), "integer", "Cores for executors. 0: as many as the machine has."
    )
)
MEMORY = define(
    Option(
        "taskmanager.memory.process.size",
        0,
        size,
        "size",
        "Memory for drivers and executors, heaps and overheads together. 0: 80 % of the machine's memory.",
    )
)
SLOT_TIMEOUT = define(
    Option(
        "taskmanager.slot.timeout",
        10.0,
        duration,
        "duration",
        "A slot that was reserved for a job and is not accepted by it in this time is freed. One that a restarted task "
        "manager has recovered has `heartbeat.timeout` more.",
    )
)
CANCELLATION_TIMEOUT = define(
    Option(
        "task.cancellation.timeout",
        10.0,
        duration,
        "duration",
        "How long a driver may take to end after SIGTERM before its whole session is killed.",
    )
)
STOP_SCRIPT_TIMEOUT = define(
    Option(
        "execution.stop.script-timeout",
        60.0,
        duration,
        "duration",
        "How long the script of a job that was suspended or drained may go on after its awaits; then its driver gets "
        "SIGTERM. The job is FINISHED either way.",
    )
)
STOP_BATCH_TIMEOUT = define(
    Option(
        "execution.stop.batch-timeout",
        600.0,
        duration,
        "duration",
        "How long the micro-batches that run may take to end once a savepoint or a stop was asked for. Then the "
        "request fails and the job goes on.",
    )
)
STOP_FUNCTION_TIMEOUT = define(
    Option(
        "execution.stop.function-timeout",
        600.0,
        duration,
        "duration",
        "How long a user function may take for one call at a savepoint or an end of the job: each function in the "
        "driver, and all instances on executors together. Then a savepoint or stop fails and the job goes on; at the "
        "end of its sources the attempt fails.",
    )
)
STOP_SAVEPOINT_TIMEOUT = define(
    Option(
        "execution.stop.savepoint-timeout",
        3600.0,
        duration,
        "duration",
        "How long each step of a savepoint or stop may take once the micro-batches have ended: the planned batches of "
        "a drain, a call of all user functions, the copy, the start of queries that had ended. Then the request fails "
        "and the job goes on; where a step hangs so that it cannot be taken back, the attempt ends, and the next one "
        "goes on.",
    )
)
SAVEPOINT_DIRECTORY = define(
    Option(
        "execution.checkpointing.savepoint-dir",
        "",
        text,
        "URI",
        "Directory, or prefix in an object store, below which each savepoint gets a directory of its own. Empty: "
        "`savepoints` in high-availability.storageDir.",
        deprecated_keys=("state.savepoints.dir",),
    )
)
LOG_RETENTION = define(
    Option(
        "taskmanager.log.retained-jobs",
        50,
        integer(0, 100_000),
        "integer",
        "Logs of this many ended jobs are kept in a task manager's working directory.",
    )
)

ADOPT_LEADER = define(
    Option(
        "taskmanager.adopt-leader",
        False,
        boolean,
        "boolean",
        "Follow a JobManager whose job store is not the one that this task manager has worked for, although something "
        "runs here: drivers and executors of jobs that it does not know are ended. For one start, after a job store "
        "was lost for good; without it they go on, and nothing new is given to this task manager.",
    )
)

ORPHAN_TIMEOUT = define(
    Option(
        "taskmanager.orphan-timeout",
        300.0,
        duration,
        "duration",
        "Drivers and executors go on while the task manager process that started them is away, for this long. "
        "Then they are ended and replaced.",
    )
)

EVACUATION_TIMEOUT = define(
    Option(
        "blocklist.evacuation.timeout",
        300.0,
        duration,
        "duration",
        "How long an executor on an evacuated node may take until another one is there, its blocks are handed over and "
        "it has ended. Then it is ended, and what it still kept is computed again. A streaming driver there has as "
        "long to stop between two micro-batches; then it is restarted elsewhere, without what its functions took last.",
    )
)

# --- starting task managers -----------------------------------------------------------------------------------------

RESOURCE_MANAGER_TYPE = define(
    Option(
        "resourcemanager.type",
        "standalone",
        choice("standalone", "local-processes"),
        "choice",
        "Who starts task managers. `standalone`: people, or `emberkeep cluster up`. `local-processes`: the JobManager, "
        "when jobs need more than are registered, as processes of its own machine.",
    )
)
LOCAL_NODES = define(
    Option(
        "resourcemanager.local-processes.nodes",
        "127.0.0.1",
        text,
        "list",
        "Nodes of `local-processes`, separated by commas: addresses of this machine, or `name=address`. One task "
        "manager stands on each at most; its id is `tm-` and the node's name.",
    )
)
MIN_SLOTS = define(
    Option(
        "slotmanager.number-of-slots.min",
        0,
        integer(0, 1_000_000),
        "integer",
        "Slots that are kept where the JobManager starts task managers, also while no job needs them.",
    )
)
MAX_SLOTS = define(
    Option(
        "slotmanager.number-of-slots.max",
        1_000_000,
        integer(1, 1_000_000),
        "integer",
        "The JobManager starts no task manager with which there would be more slots than this, those of blocked ones "
        "counted.",
    )
)
IDLE_TIMEOUT = define(
    Option(
        "resourcemanager.taskmanager-timeout",
        30.0,
        duration,
        "duration",
        "A task manager that the JobManager has started is ended when it had nothing to do for this long.",
    )
)
REGISTRATION_TIMEOUT = define(
    Option(
        "resourcemanager.taskmanager-registration.timeout",
        120.0,
        duration,
        "duration",
        "A task manager that has not registered this long after its start is killed and counts as failed.",
    )
)
START_RETRY_INTERVAL = define(
    Option(
        "resourcemanager.start-worker.retry-interval",
        3.0,
        duration,
        "duration",
        "Pause after the start of a task manager has failed.",
    )
)
MAX_START_FAILURES = define(
    Option(
        "resourcemanager.start-worker.max-failure-rate",
        10,
        integer(1, 100_000),
        "integer",
        "When so many starts have failed within a minute, no more are tried until fewer have.",
    )
)

# --- heartbeats, slots ----------------------------------------------------------------------------------------------

HEARTBEAT_INTERVAL = define(
    Option("heartbeat.interval", 2.0, duration, "duration", "Time between two heartbeats. Changes are sent at once.")
)
HEARTBEAT_TIMEOUT = define(
    Option("heartbeat.timeout", 10.0, duration, "duration", "Silence after which the other side counts as lost.")
)
RPC_TIMEOUT = define(
    Option(
        "rpc.ask.timeout", 10.0, duration, "duration", "How long an RPC may take; also bounds one connection attempt."
    )
)
SLOT_REQUEST_TIMEOUT = define(
    Option(
        "slot.request.timeout",
        300.0,
        duration,
        "duration",
        "A job that has no slot (or no driver place) at all for this long fails. 0: it waits for ever.",
    )
)
EXECUTOR_FAILURES = define(
    Option(
        "executor.max-failures",
        10,
        integer(1, 100_000),
        "integer",
        "An attempt fails when more executors than this end by themselves within executor.failure-window.",
    )
)
EXECUTOR_FAILURE_WINDOW = define(
    Option("executor.failure-window", 600.0, duration, "duration", "See executor.max-failures.")
)
EXECUTOR_BACKOFF_INITIAL = define(
    Option(
        "executor.backoff.initial",
        0.5,
        duration,
        "duration",
        "Pause before a slot is asked for again after an executor ended by itself; doubles with each in the window.",
    )
)
EXECUTOR_BACKOFF_MAX = define(Option("executor.backoff.max", 30.0, duration, "duration", "Upper bound of that pause."))
EXECUTOR_START_TIMEOUT = define(
    Option(
        "executor.start-timeout",
        120.0,
        duration,
        "duration",
        "An executor that has not registered with Spark in this time after it was asked for is ended and replaced.",
    )
)
DRIVER_LEASE = define(
    Option(
        "job.driver.lease-timeout",
        20.0,
        duration,
        "duration",
        "A driver whose TaskManager is lost and that is itself silent for this long counts as gone.",
    )
)
DRIVER_START_TIMEOUT = define(
    Option(
        "job.driver.start-timeout",
        120.0,
        duration,
        "duration",
        "A driver that has not registered in this time after its start was asked for is ended and counts as lost.",
    )
)
DRIVER_START_ATTEMPTS = define(
    Option(
        "job.driver.start-attempts",
        5,
        integer(0, 1_000_000),
        "integer",
        "Attempts in a row whose driver could not be started for the same reason, such as a failing import or a "
        "missing Java, after which the job fails, whatever the restart strategy says. They are spread over the nodes: "
        "the job fails only when the reason was met on two nodes, or no other node could take the driver. 0: no limit.",
    )
)
RESULT_RETENTION = define(
    Option("jobstore.max-capacity", 1000, integer(1, 1_000_000), "integer", "Results of ended jobs that are kept.")
)
MAX_JOBS = define(
    Option("jobmanager.max-jobs", 10_000, integer(1, 1_000_000), "integer", "Jobs that may wait or run at once.")
)

# --- local state ------------------------------------------------------------------------------------------------------

LOCAL_RECOVERY = define(
    Option(
        "state.backend.local-recovery",
        False,
        boolean,
        "boolean",
        "Whether checkpoints of streaming jobs go through the task managers' state gateways, which keep a copy of each "
        "state file on the node's disk beside the durable one.",
    )
)
LOCAL_STATE_DIRECTORY = define(
    Option(
        "taskmanager.state.local.root-dir",
        "",
        text,
        "path",
        "Directory for local state; each task manager makes one of its own in it. Empty: `state` in its working "
        "directory.",
    )
)
LOCAL_STATE_QUOTA = define(
    Option(
        "state.backend.local-recovery.max-size",
        10 * 1024**3,
        size,
        "size",
        "Disk space for local state on a task manager, or of all that share a root directory. Beyond it the copies "
        "that were not used for longest go first; the durable ones stay.",
    )
)
GATEWAY_PORT = define(
    Option(
        "state.gateway.port",
        0,
        PORT,
        "port",
        "Port of a task manager's state gateway. 0: any free port; a restarted task manager takes its old one again.",
    )
)

# --- restarts -------------------------------------------------------------------------------------------------------

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
        "Whether and when a lost driver is started again: none, fixed-delay, exponential-delay or failure-rate.",
        deprecated_keys=("restart-strategy",),
    )
)
RESTART_ON = define(
    Option(
        "restart-strategy.restart-on",
        "lost",
        choice("lost", "any"),
        "choice",
        "`lost`: only when the driver was lost (process killed, JVM died, node gone, start failed); the script's own "
        "exceptions and exit codes end the job. `any`: also then.",
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
    Option("restart-strategy.exponential-delay.initial-backoff", 1.0, duration, "duration", "First pause.")
)
EXPONENTIAL_MAX = define(
    Option("restart-strategy.exponential-delay.max-backoff", 60.0, duration, "duration", "Longest pause.")
)
EXPONENTIAL_MULTIPLIER = define(
    Option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        1.5,
        decimal(1.0, 100.0),
        "number",
        "Growth per restart.",
    )
)
EXPONENTIAL_RESET = define(
    Option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        3600.0,
        duration,
        "duration",
        "An attempt that ran this long starts the pauses and the count of attempts anew.",
    )
)
EXPONENTIAL_JITTER = define(
    Option(
        "restart-strategy.exponential-delay.jitter-factor",
        0.1,
        decimal(0.0, 1.0),
        "number",
        "Random share added to or taken from each pause.",
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
        "More failures than this within the interval fail the job.",
    )
)
RATE_INTERVAL = define(
    Option(
        "restart-strategy.failure-rate.failure-rate-interval", 60.0, duration, "duration", "Length of that interval."
    )
)
RATE_DELAY = define(
    Option("restart-strategy.failure-rate.delay", 1.0, duration, "duration", "Pause before each restart.")
)

# --- detection of bad nodes -------------------------------------------------------------------------------------------

BLOCKLIST_ACCEPTS_LOSS = define(
    Option(
        "blocklist.accept-loss",
        False,
        boolean,
        "boolean",
        "Whether a JobManager that cannot read the record of the blocklist begins with an empty list. Without it "
        "nothing new is placed until the drivers of running jobs have told the list. The unreadable record is kept.",
    )
)
DETECTION = define(
    Option(
        "blocklist.detection.enabled",
        False,
        boolean,
        "boolean",
        "Whether nodes are blocked on which processes of several jobs fail for reasons of the node (no space, I/O "
        "errors, processes that cannot be started) while these jobs work elsewhere.",
    )
)
DETECTION_JOBS = define(
    Option("blocklist.detection.jobs", 3, integer(2, 1000), "integer", "So many jobs have to fail on a node.")
)
DETECTION_WINDOW = define(Option("blocklist.detection.window", 600.0, duration, "duration", "Within this time."))
DETECTION_PROOF = define(
    Option(
        "blocklist.detection.proof-time",
        30.0,
        duration,
        "duration",
        "A job works on another node when its executors have run there for this long, or have finished the job. One "
        "that works nowhere speaks against no node.",
    )
)
DETECTION_MAX_SHARE = define(
    Option(
        "blocklist.detection.max-share",
        0.2,
        decimal(0.0, 1.0),
        "number",
        "Detection blocks nothing with which more than this share of all nodes would be blocked, by whomever. Blocked "
        "nodes count also while they are away.",
    )
)
DETECTION_DURATION = define(
    Option("blocklist.detection.duration", 1800.0, duration, "duration", "A detected node stays blocked for this long.")
)
REPORT_EXCLUDED = define(
    Option(
        "blocklist.report-excluded-nodes",
        False,
        boolean,
        "boolean",
        "Whether a job reports a node from which Spark excludes all its executors for repeated task failures "
        "(spark.excludeOnFailure.enabled), while it works elsewhere. The node is then blocked for all jobs, for "
        "blocklist.detection.duration, unless more than blocklist.detection.max-share of the job's nodes would be.",
    )
)
DETECTION_RESPECT = define(
    Option(
        "blocklist.detection.pause-after-unblock",
        3600.0,
        duration,
        "duration",
        "A node that somebody has unblocked is not blocked by detection for this long.",
    )
)

# --- logging --------------------------------------------------------------------------------------------------------

LOG_LEVEL = define(
    Option(
        "log.level", "info", choice("debug", "info", "warning", "error"), "choice", "Least important messages logged."
    )
)
LOG_MAX_SIZE = define(
    Option("log.max-size", 32 * 1024**2, size, "size", "A process's own log file is rotated at this size.")
)
LOG_FILES = define(Option("log.files", 5, integer(1, 100), "integer", "Rotated log files kept."))
SPARK_AUTHENTICATE = define(
    Option(
        "security.spark.authenticate",
        True,
        boolean,
        "boolean",
        "Whether drivers and executors authenticate each other by a secret made for each attempt.",
    )
)

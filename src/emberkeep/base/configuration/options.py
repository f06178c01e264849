"""All configuration options. docs/configuration.md is generated from them.

Where Flink has the option, it has Flink's name. The module is one long table, so that an option is found in one place,
next to similar ones.
"""

from __future__ import annotations

from emberkeep.base.configuration.hosts import host, hosts
from emberkeep.base.configuration.option_types import (
    boolean,
    choice,
    decimal,
    duration,
    duration_of_at_least,
    integer,
    interval,
    less_than,
    named_counts,
    named_lists,
    named_values,
    priority,
    size,
    size_of_at_least,
    size_or_none,
    text,
)
from emberkeep.base.configuration.values import Option, define

PORT = integer(0, 65535)
SOME_TIME = duration_of_at_least(0.001)  # where 0 would mean a loop without pauses, or a limit that is always over

# --- directories ----------------------------------------------------------------------------------------------------

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
        "How long the event logs of a job, from which its Spark UI is shown, are kept after the job has FINISHED or "
        "was CANCELED. Those of a job that has FAILED stay as long as its result, then for "
        "`high-availability.storage.unknown-delay`.",
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

# --- REST, RPC and security -----------------------------------------------------------------------------------------

REST_ADDRESS = define(
    Option("rest.address", "127.0.0.1", host, "address", "Host name or address at which clients reach the JobManager.")
)
REST_PORT = define(
    Option("rest.port", 8081, PORT, "port", "Port of the JobManager for REST, web page and RPC. 0: any free port.")
)
REST_BIND_PORT = define(
    Option(
        "rest.bind-port",
        0,
        PORT,
        "port",
        "Port that the JobManager binds, if others reach it at another one, rest.port. 0: rest.port.",
    )
)
SPARK_UI_PORT = define(
    Option(
        "rest.spark-ui.port",
        0,
        PORT,
        "port",
        "Port at which the JobManager serves the Spark UIs of jobs to browsers, apart from its web page. 0: any free "
        "port.",
    )
)
SPARK_UI_BIND_PORT = define(
    Option(
        "rest.spark-ui.bind-port",
        0,
        PORT,
        "port",
        "Port that the JobManager binds for Spark UIs, if browsers reach it at another one, rest.spark-ui.port. "
        "0: rest.spark-ui.port.",
    )
)
REST_BIND_ADDRESS = define(
    Option(
        "rest.bind-address",
        "127.0.0.1",
        host,
        "address",
        "Address that the JobManager binds. `0.0.0.0` stands for all IPv4 addresses of the machine, `::` for all. An "
        "address other than loopback needs security.token-file.",
    )
)
TOKEN_FILE = define(
    Option(
        "security.token-file",
        "",
        text,
        "path",
        "File (mode 0600) with the bearer token of REST and RPC. Empty: `token` below the state directory, "
        "created at the first start.",
    )
)
ENCRYPTION = define(
    Option(
        "security.encryption",
        "tls",
        choice("none", "tls"),
        "choice",
        "Encryption of REST, web page, RPC and BLOBs, and the default of Spark's own encryption. `tls`: TLS 1.3; "
        "callers verify each server with the cluster's CA before they send the token. Jobs encrypt the links between "
        "their Spark processes, and what these spill. `none` is possible on loopback, and gives the token to any "
        "process that takes a server's port. Set the same value everywhere.",
    )
)
INSECURE_NETWORK = define(
    Option(
        "security.insecure-network",
        False,
        boolean,
        "boolean",
        "Whether `security.encryption: none` is permitted beyond loopback. Anyone who can read the network's traffic "
        "then gets the token, and with it control of the cluster.",
    )
)
TLS_CERTIFICATE = define(
    Option(
        "security.tls.certificate",
        "",
        text,
        "path",
        "PEM file with this node's certificate and its intermediates. The certificate must name the addresses at which "
        "the node's processes are called, and must be issued for server and client authentication. Empty: a "
        "certificate of the cluster's own CA, below `tls` in the state directory.",
    )
)
TLS_KEY = define(
    Option("security.tls.key", "", text, "path", "PEM file (mode 0600) with the key of security.tls.certificate.")
)
TLS_CA = define(
    Option(
        "security.tls.ca",
        "",
        text,
        "path",
        "PEM file with the CAs that may issue certificates of the cluster's processes. Empty: `tls/ca.pem` below the "
        "state directory.",
    )
)
ALLOWED_HOSTS = define(
    Option(
        "security.allowed-hosts",
        "",
        hosts,
        "list",
        "Further values of the Host header that the JobManager accepts, separated by commas, besides "
        "rest.address and loopback names.",
    )
)

OIDC_ISSUER = define(
    Option(
        "security.oidc.issuer",
        "",
        text,
        "url",
        "Address of an OpenID Connect issuer whose tokens people and programs may use, exactly as in their claim "
        "`iss`. Empty: none.",
    )
)
OIDC_AUDIENCE = define(
    Option("security.oidc.audience", "", text, "name", "Value that the claim `aud` of the issuer's tokens must have.")
)
OIDC_ROLES = define(
    Option(
        "security.oidc.roles",
        "",
        text,
        "list",
        "Roles of token holders, separated by commas: `VALUE=ROLE` or `VALUE=ROLE@NAMESPACE`, where VALUE is one of "
        "the values of security.oidc.role-claim. If several match, the most powerful role counts.",
    )
)
OIDC_ROLE_CLAIM = define(
    Option(
        "security.oidc.role-claim",
        "groups",
        text,
        "name",
        "Claim of the issuer's tokens that security.oidc.roles refers to.",
    )
)
OIDC_NAME_CLAIM = define(
    Option(
        "security.oidc.name-claim",
        "sub",
        text,
        "name",
        "Claim with the holder's name: the issuer must not give one name to two people. `oidc:` precedes it in lists.",
    )
)
OIDC_CA = define(
    Option(
        "security.oidc.ca",
        "",
        text,
        "path",
        "PEM file with the CAs that may issue the certificate of the issuer's server. Empty: the system's CAs.",
    )
)

QUOTA_REQUESTS = define(
    Option(
        "security.quota.requests-per-second",
        200,
        integer(0, 1_000_000),
        "integer",
        "Requests per second that one identity may send to the JobManager on average, and ten times as many at once. "
        "0: no limit. The cluster's own token has no quota.",
    )
)
QUOTA_UPLOADS = define(
    Option(
        "security.quota.upload-bytes-per-second",
        0,
        size,
        "size",
        "Bytes per second that one identity may upload to the JobManager on average, and ten times as many at once. "
        "0: no limit. The cluster's own token has no quota.",
    )
)
QUOTA_JOBS = define(
    Option(
        "security.quota.jobs-per-namespace",
        0,
        integer(0, 1_000_000),
        "integer",
        "Jobs of one namespace that may wait or run at a time. Further ones are refused. 0: no limit. Jobs without a "
        "namespace have no quota.",
    )
)
QUOTA_DRIVERS = define(
    Option(
        "security.quota.drivers-per-namespace",
        0,
        integer(0, 1_000_000),
        "integer",
        "Jobs of one namespace that may run at a time, each with its driver. Further ones wait, in the order of their "
        "submission. 0: no limit. Jobs without a namespace have no quota.",
    )
)
QUOTA_SLOTS = define(
    Option(
        "security.quota.slots-per-namespace",
        0,
        integer(0, 1_000_000),
        "integer",
        "Slots that all jobs of one namespace may have at a time. A job that needs more runs with those that it gets, "
        "and waits for the others. 0: no limit. Jobs without a namespace have no quota.",
    )
)
GUARANTEED_SLOTS: Option[dict[str, int]] = define(
    Option(
        "security.quota.guaranteed-slots",
        {},
        named_counts,
        "named numbers",
        "Slots that namespaces are guaranteed, such as `team-a=4;team-b=2`. Others may use them as long as the "
        "namespace does not need them. A namespace that has fewer, and whose jobs wait, comes first when slots are "
        "free, and other jobs give slots back as `slotmanager.preemption` says. A guarantee may not be larger than "
        "`security.quota.slots-per-namespace`. Namespaces that are not named have no guarantee.",
    )
)
AUDIT_MAX_SIZE = define(
    Option(
        "security.audit.max-size",
        32 * 1024**2,
        size_of_at_least(1024),
        "size",
        "Size at which a JobManager rotates its audit log.",
    )
)
AUDIT_FILES = define(
    Option(
        "security.audit.files",
        20,
        integer(1, 1000),
        "integer",
        "Number of rotated files of the audit log that are kept. The oldest one is deleted first.",
    )
)

AUDIT_SHIP = define(
    Option(
        "security.audit.ship",
        True,
        boolean,
        "boolean",
        "Whether each JobManager also copies its audit log to `audit/` in high-availability.storageDir, so that it "
        "outlives the machine. Without that directory, nothing is copied.",
    )
)
RUN_AS = define(
    Option(
        "security.run-as",
        "",
        text,
        "list",
        "Operating system users that drivers and executors run as, separated by commas: "
        "`NAMESPACE=USER`, and `*=USER` or just `USER` for all other jobs. A job without a user is refused. "
        "Needs a task manager that runs as root, and encryption. Empty: the task manager's own user.",
    )
)

# --- BLOBs: artefacts, off-loaded messages, logs ----------------------------------------------------------------------

BLOB_DIRECTORY = define(
    Option(
        "blob.storage.directory",
        "",
        text,
        "path",
        "Local store of a JobManager's BLOB server or a task manager's BLOB cache. Empty: `blobs` below the "
        "process's own directory. Each process on a machine needs a directory of its own.",
    )
)
BLOB_HA_STORAGE = define(
    Option(
        "blob.storage.ha-directory",
        "",
        text,
        "path",
        "Where permanent BLOBs are kept for recovery: a directory that all machines share, or "
        "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. Object stores need `pip install "
        "'emberkeep[object-store]'` and take their credentials from the environment. Empty: `blobs` below "
        "high-availability.storageDir.",
    )
)
BLOB_RETENTION = define(
    Option(
        "blob.retention.interval",
        1800.0,
        SOME_TIME,
        "duration",
        "Time between two staged clean-ups. An unreferenced BLOB is deleted after one to two of these intervals.",
        deprecated_keys=("library-cache-manager.cleanup.interval",),
    )
)
BLOB_MAX_SIZE = define(
    Option(
        "blob.max-size",
        4 * 1024**3,
        size,
        "size",
        "Size limit of one BLOB.",
        deprecated_keys=("web.upload.max-size",),
    )
)
BLOB_MAX_COUNT = define(
    Option(
        "blob.max-count",
        500_000,
        integer(1, 10_000_000),
        "integer",
        "Number of BLOBs of all jobs. While there are so many, clients cannot upload or announce further ones. "
        "Messages and logs of jobs that run are accepted beyond it.",
    )
)
BLOB_DIRECT_DOWNLOADS = define(
    Option(
        "blob.server.direct-downloads",
        4,
        integer(1, 100_000),
        "integer",
        "How many downloads of one BLOB the BLOB server serves at a time. It refers further ones to task "
        "managers whose BLOB cache has the BLOB.",
    )
)
OFFLOAD_MIN_SIZE = define(
    Option(
        "rpc.offload.min-size",
        1024**2,
        size,
        "size",
        "Size above which a part of an RPC message travels as a BLOB, uploaded once for all receivers.",
    )
)

# --- high availability ------------------------------------------------------------------------------------------------

HA_TYPE = define(
    Option(
        "high-availability.type",
        "embedded",
        choice("embedded", "zookeeper"),
        "choice",
        "`embedded`: one JobManager, which keeps its jobs in a local file. `zookeeper`: several JobManagers, "
        "of which one is the leader.",
        deprecated_keys=("high-availability",),
    )
)
HA_CLUSTER_ID = define(
    Option(
        "high-availability.cluster-id",
        "default",
        text,
        "id",
        "Name of the cluster, unique among the clusters that share a ZooKeeper.",
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
        "ZooKeeper node below which each cluster has a node of its own.",
    )
)
ZOOKEEPER_SESSION_TIMEOUT = define(
    Option(
        "high-availability.zookeeper.client.session-timeout",
        4.0,
        SOME_TIME,
        "duration",
        "Silence after which ZooKeeper ends a leader's session. The servers limit it to between 2 and 20 of "
        "their ticks.",
    )
)
ZOOKEEPER_CONNECTION_TIMEOUT = define(
    Option(
        "high-availability.zookeeper.client.connection-timeout",
        15.0,
        SOME_TIME,
        "duration",
        "Time after which a ZooKeeper operation without a reply counts as failed.",
    )
)
ZOOKEEPER_AUTHORIZATION = define(
    Option(
        "high-availability.zookeeper.client.authorization",
        "",
        text,
        "text",
        "Credentials of this cluster at ZooKeeper: `digest:user:password`. Set them in the configuration "
        "file, because other users can read a process's arguments.",
        secret=True,
    )
)
ZOOKEEPER_AUTHORIZATION_FILE = define(
    Option(
        "high-availability.zookeeper.client.authorization-file",
        "",
        text,
        "path",
        "File (mode 0600) with the credentials, used if high-availability.zookeeper.client.authorization is empty.",
    )
)
ZOOKEEPER_SASL = define(
    Option(
        "high-availability.zookeeper.client.sasl",
        "none",
        choice("none", "DIGEST-MD5", "GSSAPI"),
        "choice",
        "SASL mechanism at ZooKeeper. `DIGEST-MD5` uses user and password of the credentials; `GSSAPI` uses the "
        "process's Kerberos ticket for the service `zookeeper`. Needs the Python package pure-sasl.",
    )
)
ZOOKEEPER_TLS = define(
    Option(
        "high-availability.zookeeper.client.ssl.enabled",
        False,
        boolean,
        "boolean",
        "Encrypt the connections to ZooKeeper, and check the servers' certificates and host names.",
    )
)
ZOOKEEPER_CA_FILE = define(
    Option(
        "high-availability.zookeeper.client.ssl.ca-file",
        "",
        text,
        "path",
        "PEM file with the CAs that may sign the servers' certificates. Empty: the system's CAs.",
    )
)
ZOOKEEPER_CERTIFICATE_FILE = define(
    Option(
        "high-availability.zookeeper.client.ssl.certificate-file",
        "",
        text,
        "path",
        "PEM file with this cluster's certificate for ZooKeeper; needs the key file.",
    )
)
ZOOKEEPER_KEY_FILE = define(
    Option(
        "high-availability.zookeeper.client.ssl.key-file",
        "",
        text,
        "path",
        "PEM file (mode 0600) with the private key of that certificate.",
    )
)
ZOOKEEPER_INSECURE_ACCESS = define(
    Option(
        "high-availability.zookeeper.insecure-access",
        False,
        boolean,
        "boolean",
        "Whether ZooKeeper servers that are not on loopback may be used with no credentials, no SASL and no TLS. "
        "Anyone who can reach such servers can read the cluster's records and stop the cluster.",
    )
)
ZOOKEEPER_ACL = define(
    Option(
        "high-availability.zookeeper.client.acl",
        "auto",
        choice("auto", "open", "creator"),
        "choice",
        "Who may read and change this cluster's ZooKeeper nodes. `open`: everyone. `creator`: only clients with the "
        "same credentials. `auto`: `creator` if there are credentials or SASL, else `open`.",
    )
)
ZOOKEEPER_RECORDS = define(
    Option(
        "high-availability.zookeeper.insecure-records",
        "refuse",
        choice("refuse", "sign", "keep-unsigned"),
        "choice",
        "What to do with records in ZooKeeper that are not signed with this cluster's key. `refuse` is the only secure "
        "value. `sign`: trust them, and let the next leader sign them, after an upgrade or a change of the token. "
        "`keep-unsigned`: trust them and sign nothing, while processes of release 0.1.0 take part.",
    )
)

# --- JobManagers ----------------------------------------------------------------------------------------------------

JOB_MANAGER_ID = define(
    Option(
        "jobmanager.resource-id",
        "",
        text,
        "id",
        "Name of a JobManager among several that share a state directory. Each keeps its logs and BLOBs "
        "below `jobmanagers/<id>`.",
    )
)

# --- task managers --------------------------------------------------------------------------------------------------

JOB_MANAGER_ADDRESS = define(
    Option(
        "jobmanager.rpc.address",
        "",
        text,
        "address",
        "host:port of the JobManager at which a task manager registers. Empty: rest.address and rest.port.",
    )
)
TASK_MANAGER_ID = define(
    Option(
        "taskmanager.resource-id",
        "",
        text,
        "id",
        "Stable id of a task manager, unique in the cluster. Empty: the id that its working directory "
        "already has, else `tm-` and taskmanager.host.",
    )
)
TASK_MANAGER_HOST = define(
    Option(
        "taskmanager.host",
        "127.0.0.1",
        host,
        "address",
        "Host name or address at which other processes reach a task manager, its drivers and its executors.",
    )
)
TASK_MANAGER_BIND_HOST = define(
    Option(
        "taskmanager.bind-host",
        "",
        host,
        "address",
        "Address that a task manager, its drivers and its executors bind, if it differs from taskmanager.host. "
        "`0.0.0.0` stands for all IPv4 addresses of the machine, `::` for all. Empty: taskmanager.host.",
    )
)
JOB_ENVIRONMENT = define(
    Option(
        "taskmanager.job-environment",
        "",
        text,
        "names",
        "Environment variables of the task manager that drivers and executors inherit besides the usual ones, "
        "separated by commas. `MY_*`: all that begin with `MY_`; `*`: all.",
    )
)
TASK_MANAGER_NODE = define(
    Option(
        "taskmanager.node-id",
        "",
        text,
        "id",
        "Name of the machine on which the task manager runs. Empty: taskmanager.host.",
    )
)
DRAIN_TIMEOUT = define(
    Option(
        "taskmanager.drain.timeout",
        300.0,
        duration,
        "duration",
        "After a SIGUSR1, how long a task manager lets its work move to other task managers before it stops what is "
        "left, and ends.",
    )
)
SIGTERM_ENDS_WORK = define(
    Option(
        "taskmanager.sigterm-ends-work",
        False,
        boolean,
        "boolean",
        "What SIGTERM means to a task manager. `false`: only its own process ends, its drivers and executors continue "
        "for the next one. `true`: it stops them first and leaves the cluster, because everything on the node is about "
        "to end, as in a container or a Slurm job.",
    )
)
TASK_MANAGER_PORT = define(
    Option("taskmanager.rpc.port", 0, PORT, "port", "RPC port of a task manager. 0: any free port.")
)
TASK_MANAGER_BIND_PORT = define(
    Option(
        "taskmanager.rpc.bind-port",
        0,
        PORT,
        "port",
        "RPC port that a task manager binds, if others reach it at another one, taskmanager.rpc.port. "
        "0: taskmanager.rpc.port.",
    )
)
SLOTS = define(
    Option(
        "taskmanager.numberOfTaskSlots",
        2,
        integer(0, 1024),
        "integer",
        "Slots of a task manager. Each runs one executor.",
    )
)
DRIVER_PLACES = define(
    Option(
        "taskmanager.driver-places", 4, integer(0, 1024), "integer", "Drivers that a task manager may run at a time."
    )
)
CORES = define(
    Option("taskmanager.cpu.cores", 0, integer(0, 4096), "integer", "Cores for executors. 0: all cores of the machine.")
)
MEMORY = define(
    Option(
        "taskmanager.memory.process.size",
        0,
        size,
        "size",
        "Memory for drivers and executors, with heap and overhead. 0: 80 % of the machine's memory.",
    )
)
MEMORY_LIMIT = define(
    Option(
        "taskmanager.memory.limit",
        "when-short",
        choice("none", "when-short", "always"),
        "choice",
        "When a driver or an executor that uses more memory than it was given, with its Python workers, is ended. "
        "`when-short`: the one that exceeds its memory most, while the machine has less than "
        "taskmanager.memory.reserve left. `always`: each. `none`: never.",
    )
)
MEMORY_RESERVE = define(
    Option(
        "taskmanager.memory.reserve",
        256 * 1024**2,
        size,
        "size",
        "The machine is short of memory if less than this is available to processes.",
    )
)
CGROUPS = define(
    Option(
        "taskmanager.cgroups",
        "off",
        choice("off", "auto", "required"),
        "choice",
        "Whether each driver and executor gets a control group of its own, below that of the task manager. Its cores "
        "are its weight while groups compete for the processors. With taskmanager.memory.limit: always, the kernel "
        "keeps it to its memory. `auto`: where that is possible without disturbing systemd. `required`: the task "
        "manager does not start without.",
    )
)
RESOURCE_ADDRESSES: Option[dict[str, tuple[str, ...]]] = define(
    Option(
        "taskmanager.resources.addresses",
        {},
        named_lists,
        "named lists",
        "Custom resources that a task manager offers, by the names that jobs use in `spark.executor.resource.<name>."
        "amount`, and the addresses of each: `gpu=0,1;fpga=f0`. An executor gets its addresses for itself. Task "
        "managers of one machine must not offer the same address twice.",
    )
)
RESOURCE_DISCOVERY: Option[dict[str, str]] = define(
    Option(
        "taskmanager.resources.discovery-scripts",
        {},
        named_values,
        "named paths",
        "Executables that find the addresses of custom resources when a task manager starts: "
        "`gpu=/opt/spark/getGpusResources.sh`. Each prints a line of JSON as Spark's discovery scripts do: "
        '`{"name": "gpu", "addresses": ["0", "1"]}`. If a script fails, the task manager does not start.',
    )
)
STANDBY_DRIVERS = define(
    Option(
        "taskmanager.standby.drivers",
        1,
        integer(0, 64),
        "integer",
        "Warm driver processes that a task manager keeps ready for jobs. They use memory that slots and drivers "
        "leave free, and are warmed at idle priority. 0: none.",
    )
)
STANDBY_EXECUTORS = define(
    Option(
        "taskmanager.standby.executors",
        1,
        integer(0, 64),
        "integer",
        "Warm executor processes that a task manager keeps ready for jobs, on the same terms, and one more for each "
        "job that has a reserved standby there (`execution.standby`), up to its number of slots. 0: none.",
    )
)
SLOT_TIMEOUT = define(
    Option(
        "taskmanager.slot.timeout",
        10.0,
        duration,
        "duration",
        "How long a slot stays reserved for a job that does not accept it. A slot that a restarted task "
        "manager has recovered stays reserved for `heartbeat.timeout` longer.",
    )
)
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
STANDBY = define(
    Option(
        "execution.standby",
        "none",
        choice("none", "hot"),
        "choice",
        "Whether a job that runs streaming queries has a driver process reserved for its next attempt, on another node "
        "than its driver: warm, and with what the script imports. `hot`: where a task manager keeps standby drivers "
        "and has memory for one more. `none`: the next attempt takes any warm driver that fits.",
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
        "Of a pause without savepoints, two intervals count. 0: any age.",
    )
)
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
        "earlier. 0: for as long as the job is listed.",
    )
)
LOG_RETENTION = define(
    Option(
        "taskmanager.log.retained-jobs",
        50,
        integer(0, 100_000),
        "integer",
        "Number of ended jobs whose logs are kept in a task manager's working directory.",
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

BUILD_CLASS_ARCHIVE = define(
    Option(
        "taskmanager.class-archive.build",
        True,
        boolean,
        "boolean",
        "Build the class-data archive, which halves the start-up time of Spark's JVMs, if none fits: once per user "
        "and machine, in the background, at idle priority. False: only `emberkeep prepare` builds it.",
    )
)
ADOPT_LEADER = define(
    Option(
        "taskmanager.adopt-leader",
        False,
        boolean,
        "boolean",
        "Follow a JobManager with a different job store from the one that this task manager has worked for, even "
        "while processes of jobs run here. Drivers and executors of jobs that the JobManager does not know "
        "are terminated. Set it for one start, after a job store was lost permanently. Without it, these "
        "processes continue, and the task manager gets no new work.",
    )
)

ORPHAN_TIMEOUT = define(
    Option(
        "taskmanager.orphan-timeout",
        300.0,
        duration,
        "duration",
        "How long drivers and executors keep running without the task manager process that started them. "
        "After that time they are terminated and replaced.",
    )
)

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

# --- starting task managers -----------------------------------------------------------------------------------------

RESOURCE_MANAGER_TYPE = define(
    Option(
        "resourcemanager.type",
        "standalone",
        choice("standalone", "local-processes", "slurm"),
        "choice",
        "What starts task managers. `standalone`: you, or `emberkeep cluster up`. `local-processes`: the "
        "JobManager, as processes on its own machine, when jobs need more slots than are registered. `slurm`: the "
        "JobManager, as jobs of the workload manager Slurm, likewise.",
    )
)
LOCAL_NODES = define(
    Option(
        "resourcemanager.local-processes.nodes",
        "127.0.0.1",
        text,
        "list",
        "Nodes of `local-processes`, separated by commas: addresses of this machine, or `name=address`. Each "
        "node has at most one task manager; its id is `tm-` and the node's name.",
    )
)
SLURM_BIN = define(
    Option(
        "resourcemanager.slurm.bin-dir",
        "",
        text,
        "path",
        "Directory of Slurm's commands `sbatch`, `squeue`, `scancel` and `sinfo`. Empty: they are on the path.",
    )
)
SLURM_PARTITION = define(
    Option(
        "resourcemanager.slurm.partition",
        "",
        text,
        "name",
        "Partition of the task managers' jobs, or several, separated by commas. Empty: Slurm's default partition.",
    )
)
SLURM_ACCOUNT = define(
    Option("resourcemanager.slurm.account", "", text, "name", "Account that the task managers' jobs are charged to.")
)
SLURM_QOS = define(
    Option("resourcemanager.slurm.qos", "", text, "name", "Quality of service (QOS) of the task managers' jobs.")
)
SLURM_TIME_LIMIT = define(
    Option(
        "resourcemanager.slurm.time-limit",
        "",
        text,
        "time",
        "Time limit of a task manager's job as `sbatch --time` takes it, such as `24:00:00`. Before the time is over, "
        "the work moves to other task managers. Empty: the partition's default.",
    )
)
SLURM_GRES = define(
    Option("resourcemanager.slurm.gres", "", text, "list", "Generic resources of each job, as for `sbatch --gres`.")
)
SLURM_CONSTRAINT = define(
    Option(
        "resourcemanager.slurm.constraint",
        "",
        text,
        "expression",
        "Features that a node must have, as for `sbatch --constraint`.",
    )
)
SLURM_ARGUMENTS = define(
    Option(
        "resourcemanager.slurm.arguments",
        "",
        text,
        "arguments",
        "Further arguments of `sbatch`, quoted as in a shell. They win over those that Emberkeep passes.",
    )
)
SLURM_INTERFACE = define(
    Option(
        "resourcemanager.slurm.interface",
        "",
        text,
        "name",
        "Network interface of the nodes, such as `ib0`, whose address task managers, drivers and executors use. "
        "Empty: the address from which a node reaches the JobManager.",
    )
)
SLURM_DRAINED_NODES = define(
    Option(
        "resourcemanager.slurm.drained-nodes",
        "block",
        choice("block", "evacuate"),
        "choice",
        "What happens to task managers on a node that Slurm drains. `block`: the node is blocked, and running work "
        "stays. `evacuate`: running work moves elsewhere as well. Both end when the node is in service again.",
    )
)
SLURM_QUERY_INTERVAL = define(
    Option(
        "resourcemanager.slurm.query-interval",
        5.0,
        duration_of_at_least(1.0),
        "duration",
        "Shortest time between two `squeue` calls of the JobManager, and between two `sinfo` calls. Between them it "
        "uses what the last one printed. Less than 5 s draws a warning.",
        caution=less_than(5.0, "each query costs slurmctld time, and it serves all users of the Slurm cluster"),
    )
)
SLURM_COMMAND_TIMEOUT = define(
    Option(
        "resourcemanager.slurm.command-timeout",
        15.0,
        duration_of_at_least(1.0),
        "duration",
        "How long one command of Slurm may take. After that time it is killed.",
    )
)
SLURM_DRAIN_TIME = define(
    Option(
        "resourcemanager.slurm.drain-time",
        300.0,
        duration_of_at_least(60.0),
        "duration",
        "How long before the end of its time limit a task manager begins to move its work elsewhere. Slurm counts in "
        "minutes, so this may begin up to a minute earlier.",
    )
)
PRIORITY_PATIENCE = define(
    Option(
        "slotmanager.priority.patience",
        60.0,
        duration,
        "duration",
        "A job that has waited for this long without any slot, or for its driver's place, counts as one of the highest "
        "`job.priority` that waits. Also the longest time for which a job that restarts keeps its place and slots.",
    )
)
MIN_FREE_DISK = define(
    Option(
        "slotmanager.min-free-disk",
        200 * 1024**2,
        size,
        "size",
        "A task manager gets no new work while less than this is free on the disk with its working directory; of a "
        "disk below twenty times this size, while less than 5 % are free. 0: it always gets new work.",
    )
)
PREEMPTION = define(
    Option(
        "slotmanager.preemption",
        "elastic",
        choice("none", "elastic", "executors", "jobs"),
        "choice",
        "Which running jobs give executors back for namespaces below their guarantee "
        "(`security.quota.guaranteed-slots`), and for jobs of a higher `job.priority` in the same namespace. "
        "`elastic`: jobs with dynamic allocation or autoscaling, down to their smallest number of executors. "
        "`executors`: after them also jobs with a fixed number of executors, if their priority is lower, down to one "
        "executor, but no gangs. `jobs`: after them also whole jobs of a lower priority, gangs included: their drivers "
        "continue without executors until slots are free again. `none`: guarantees and priorities only order the free "
        "slots.",
    )
)
PREEMPTION_TIMEOUT = define(
    Option(
        "slotmanager.preemption.timeout",
        120.0,
        duration,
        "duration",
        "How long an executor may take to end its tasks, hand over its blocks and end, once its slot is to be given "
        "back to other jobs. After that time it is terminated: its running tasks, and blocks that it still held, are "
        "computed again.",
    )
)
MIN_SLOTS = define(
    Option(
        "slotmanager.number-of-slots.min",
        0,
        integer(0, 1_000_000),
        "integer",
        "Slots that stay available when the JobManager starts task managers, even while no job needs them.",
    )
)
MAX_SLOTS = define(
    Option(
        "slotmanager.number-of-slots.max",
        1_000_000,
        integer(1, 1_000_000),
        "integer",
        "The JobManager starts no task manager that would raise the number of slots above this. Slots of "
        "a blocked task manager count, unless it is idle.",
    )
)
IDLE_TIMEOUT = define(
    Option(
        "resourcemanager.taskmanager-timeout",
        30.0,
        duration,
        "duration",
        "How long a task manager that the JobManager has started may be idle before it is terminated.",
    )
)
REGISTRATION_TIMEOUT = define(
    Option(
        "resourcemanager.taskmanager-registration.timeout",
        120.0,
        duration,
        "duration",
        "How long a task manager that the JobManager has started may take to register. After that time it is killed, "
        "and the start counts as failed.",
    )
)
START_RETRY_INTERVAL = define(
    Option(
        "resourcemanager.start-worker.retry-interval",
        3.0,
        duration,
        "duration",
        "Pause after a task manager failed to start.",
    )
)
MAX_START_FAILURES = define(
    Option(
        "resourcemanager.start-worker.max-failure-rate",
        10,
        integer(1, 100_000),
        "integer",
        "After this many failed starts within a minute, the JobManager starts no task manager until the number "
        "has fallen below it.",
    )
)

# --- heartbeats, slots ----------------------------------------------------------------------------------------------

HEARTBEAT_INTERVAL = define(
    Option(
        "heartbeat.interval", 2.0, SOME_TIME, "duration", "Time between two heartbeats. Changes are sent immediately."
    )
)
HEARTBEAT_TIMEOUT = define(
    Option(
        "heartbeat.timeout",
        10.0,
        SOME_TIME,
        "duration",
        "Silence after which a process counts its peer as lost. Must be longer than `heartbeat.interval`.",
    )
)
RPC_TIMEOUT = define(
    Option(
        "rpc.ask.timeout",
        10.0,
        SOME_TIME,
        "duration",
        "How long an RPC may take, and how long one connection attempt may take.",
    )
)
SLOT_REQUEST_TIMEOUT = define(
    Option(
        "slot.request.timeout",
        300.0,
        duration,
        "duration",
        "How long a job may have no slot at all, or no driver place, before it fails. 0: no limit.",
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
RESULT_RETENTION = define(
    Option(
        "jobstore.max-capacity", 1000, integer(1, 1_000_000), "integer", "Number of ended jobs whose results are kept."
    )
)
MAX_JOBS = define(
    Option("jobmanager.max-jobs", 10_000, integer(1, 1_000_000), "integer", "Jobs that may wait or run at a time.")
)
MAX_TASK_MANAGERS = define(
    Option(
        "jobmanager.max-task-managers",
        10_000,
        integer(1, 100_000),
        "integer",
        "Task managers that may be registered at a time. The JobManager refuses a further one, which tries again, "
        "unless jobs hold something there.",
    )
)

# --- local state ------------------------------------------------------------------------------------------------------

LOCAL_RECOVERY = define(
    Option(
        "state.backend.local-recovery",
        False,
        boolean,
        "boolean",
        "Whether checkpoints of streaming jobs go through the task managers' state gateways, which keep a "
        "copy of each state file on the node's disk in addition to the durable one.",
    )
)
LOCAL_STATE_DIRECTORY = define(
    Option(
        "taskmanager.state.local.root-dir",
        "",
        text,
        "path",
        "Directory for local state. Each task manager creates a directory of its own in it. Empty: `state` "
        "in its working directory.",
    )
)
LOCAL_STATE_QUOTA = define(
    Option(
        "state.backend.local-recovery.max-size",
        10 * 1024**3,
        size,
        "size",
        "Disk space for the local state of a task manager, or of all task managers that share a root "
        "directory. Above it, the least recently used copies are deleted; the durable files stay.",
    )
)
GATEWAY_PORT = define(
    Option(
        "state.gateway.port",
        0,
        PORT,
        "port",
        "Port of a task manager's state gateway. 0: any free port; a restarted task manager uses its "
        "previous port again.",
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

# --- detection of bad nodes -------------------------------------------------------------------------------------------

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

# --- autoscaling ------------------------------------------------------------------------------------------------------

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

# --- watchdog ---------------------------------------------------------------------------------------------------------

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

# --- notifications ----------------------------------------------------------------------------------------------------

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

# --- metrics --------------------------------------------------------------------------------------------------------

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

# --- logging --------------------------------------------------------------------------------------------------------

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
SPARK_AUTHENTICATE = define(
    Option(
        "security.spark.authenticate",
        True,
        boolean,
        "boolean",
        "Whether drivers and executors authenticate each other with a secret created for each attempt. Without "
        "authentication, Spark does not encrypt.",
    )
)

"""Options of task managers that are started on demand."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import choice, duration, duration_of_at_least, integer, less_than, text
from emberkeep.base.configuration.values import Option, define

RESOURCE_MANAGER_TYPE = define(
    Option(
        "resourcemanager.type",
        "standalone",
        choice("standalone", "local-processes", "slurm", "kubernetes"),
        "choice",
        "What starts task managers. `standalone`: you, or `emberkeep cluster up`. `local-processes`: the "
        "JobManager, as processes on its own machine, when jobs need more slots than are registered. `slurm`: the "
        "JobManager, as jobs of the workload manager Slurm, likewise. `kubernetes`: the JobManager, as pods.",
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
KUBERNETES_NAMESPACE = define(
    Option("kubernetes.namespace", "default", text, "name", "Namespace in which the pods of task managers are created.")
)
KUBERNETES_IMAGE = define(
    Option(
        "kubernetes.container.image.ref",
        "",
        text,
        "image",
        "Image of the pods: the JobManager's release of Emberkeep, Python and Java, at the same paths. Empty: that of "
        "the pod template.",
    )
)
KUBERNETES_SERVICE_ACCOUNT = define(
    Option(
        "kubernetes.taskmanager.service-account",
        "",
        text,
        "name",
        "Service account of the pods. They need no rights. Empty: the template's, or the namespace's default.",
    )
)
KUBERNETES_POD_TEMPLATE = define(
    Option(
        "kubernetes.pod-template-file.default",
        "",
        text,
        "path",
        "File with a pod (YAML) from which those of task managers are made: volumes, tolerations, labels and others. "
        "Its container `taskmanager` becomes the task manager's.",
    )
)
KUBERNETES_CONFIG = define(
    Option(
        "kubernetes.config.file",
        "",
        text,
        "path",
        "File with the API server's address and credentials, as for kubectl. Empty: the service account's if the "
        "JobManager runs in a pod, otherwise kubectl's file.",
    )
)
KUBERNETES_CONTEXT = define(
    Option(
        "kubernetes.context",
        "",
        text,
        "name",
        "Context in kubernetes.config.file, or in kubectl's file. Empty: its current one. In a pod without "
        "kubernetes.config.file it is refused.",
    )
)
KUBERNETES_DRAIN_TIME = define(
    Option(
        "kubernetes.taskmanager.drain-time",
        300.0,
        duration_of_at_least(60.0),
        "duration",
        "How long a pod that others delete, such as `kubectl drain`, may move its work elsewhere before it is killed "
        "(`terminationGracePeriodSeconds`).",
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

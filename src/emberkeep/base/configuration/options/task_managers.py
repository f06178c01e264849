"""Options of task managers: identity, addresses, slots, memory, and how their work ends."""

from __future__ import annotations

from emberkeep.base.configuration.hosts import host
from emberkeep.base.configuration.option_types import (
    PORT,
    boolean,
    choice,
    duration,
    integer,
    named_lists,
    named_values,
    size,
    text,
)
from emberkeep.base.configuration.values import Option, define

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

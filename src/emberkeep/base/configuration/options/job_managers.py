"""Options of JobManagers: addresses, heartbeats, and what they keep at most."""

from __future__ import annotations

from emberkeep.base.configuration.hosts import host
from emberkeep.base.configuration.option_types import PORT, SOME_TIME, integer, text
from emberkeep.base.configuration.values import Option, define

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
JOB_MANAGER_ADDRESS = define(
    Option(
        "jobmanager.rpc.address",
        "",
        text,
        "address",
        "host:port of the JobManager at which a task manager registers. Empty: rest.address and rest.port.",
    )
)
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

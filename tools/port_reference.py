"""Generates docs/production/ports.md: who connects to whom. Each option that names a port must be in its table."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.configuration import options as _declared  # noqa: F401  (importing it fills the registry)
from emberkeep.base.configuration.values import options

_HEAD = """# Ports and firewalls

<!-- Written by `python -m tools.check_docs --write` from the declared options. Do not edit. -->

This page is for those who configure firewalls: who connects to whom, and at which port. To see whether a machine can be
reached:

```console
$ emberkeep doctor --all | grep port
```

| listens | at | default port | fixed by | connections from |
|---|---|---|---|---|
"""

_TAIL = """
"Any free port" is one that the operating system chooses: on Linux from `net.ipv4.ip_local_port_range`, 32768 to 60999
by default.

## Rules

- **Between the cluster's own machines** (JobManagers and task managers), allow all of these ports. Drivers and
  executors run on the machines of task managers and get new ports with each attempt, so a list of single ports needs
  a fixed range: limit `net.ipv4.ip_local_port_range` on these machines and allow that range between them.
- **From clients, browsers and Prometheus**, allow only the JobManagers' `rest.port`, and `rest.spark-ui.port` for
  people who look at Spark UIs. Everything else, such as logs, is read through the JobManager. Clients never connect to
  a task manager or a driver.
- **From elsewhere**, allow nothing. Each port checks who connects, see [security](../security.md), but a
  firewall keeps strangers from trying.
- **Outgoing**: to the storage, to ZooKeeper, and to what you have configured of `security.oidc.issuer`,
  `notifications.webhook.url` and `metrics.otlp.endpoint`; and to the sources and sinks of the jobs.
- **One address for all**: a task manager, its drivers and executors bind `taskmanager.host`, the JobManager binds
  `rest.bind-address`. On a machine with several networks, name the address of the inner one.
- **Translated ports**: `rest.bind-port`, `rest.spark-ui.bind-port` and `taskmanager.rpc.bind-port` are what the
  daemons bind if others reach these ports at other numbers: see [addresses](../clusters.md#addresses).

## Read next

- [Security](../security.md): how each connection is authenticated and encrypted
- [Run as a service](service.md)
- [Clusters](../clusters.md#on-several-machines)
"""


@dataclass(frozen=True)
class _Port:
    """A row of the table. ``option``: "" if no option of Emberkeep fixes the port; ``fixed_by`` says what does."""

    listens: str
    at: str
    option: str
    peers: str
    fixed_by: str = ""
    default: str = "any free port"


_PORTS = (
    _Port(
        "JobManager: REST, web page, metrics, BLOBs, messages",
        "`rest.bind-address`",
        "rest.port",
        "clients, browsers, Prometheus; task managers, drivers; other JobManagers",
    ),
    _Port("JobManager: Spark UIs of jobs", "`rest.bind-address`", "rest.spark-ui.port", "browsers"),
    _Port(
        "task manager: orders, BLOBs for other nodes",
        "`taskmanager.host`",
        "taskmanager.rpc.port",
        "JobManagers, drivers, other task managers",
    ),
    _Port(
        "task manager: state gateway, with [local recovery](../local-state.md)",
        "`taskmanager.host`",
        "state.gateway.port",
        "drivers and executors of the same machine",
    ),
    _Port("driver: JobMaster", "`taskmanager.host`", "", "JobManagers, task managers", "nothing"),
    _Port(
        "driver: Spark's scheduler",
        "`taskmanager.host`",
        "",
        "its executors",
        "`--conf spark.driver.port` of the job",
    ),
    _Port(
        "driver and executors: Spark's blocks and shuffles",
        "`taskmanager.host`",
        "",
        "drivers and executors of the same job",
        "`--conf spark.blockManager.port` of the job",
    ),
    _Port(
        "driver: [functions on executors](../user-functions.md)",
        "`taskmanager.host`",
        "",
        "Python workers of its executors",
        "nothing",
    ),
    _Port("driver: Spark UI, and its own state gateway", "loopback", "", "the same machine", "nothing"),
    _Port(
        "ZooKeeper, with several JobManagers",
        "its own settings",
        "",
        "JobManagers, task managers",
        "`high-availability.zookeeper.quorum`",
        "2181",
    ),
)


def render() -> str:
    """Return the whole page. Raises ValueError if the table lacks an option that names a port, or names another."""
    defaults = {
        option.key: option.default
        for option in options()
        if option.key.endswith((".port", "-port")) and not option.key.endswith(".bind-port")
    }
    named = {port.option for port in _PORTS if port.option}
    if named != defaults.keys():
        raise ValueError(f"tools/port_reference.py and the options differ: {sorted(named ^ defaults.keys())}")
    return _HEAD + "".join(_row(port, defaults) for port in _PORTS) + _TAIL


def _row(port: _Port, defaults: dict[str, object]) -> str:
    fixed_by = f"`{port.option}`" if port.option else port.fixed_by
    number = defaults[port.option] if port.option else 0
    return f"| {port.listens} | {port.at} | {number or port.default} | {fixed_by} | {port.peers} |\n"

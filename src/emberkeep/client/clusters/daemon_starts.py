"""Starts single daemons of a local cluster, each with its own settings."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_CA_FILE, ZOOKEEPER_TLS
from emberkeep.base.configuration.options.job_managers import REST_BIND_ADDRESS
from emberkeep.base.configuration.options.security import ENCRYPTION
from emberkeep.base.configuration.options.task_managers import CORES, MEMORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import TaskManagerId
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape, DaemonRecord, ZooKeeperRecord
from emberkeep.client.clusters.daemon_process import Announcement, Daemon, DaemonCommand, start_daemon
from emberkeep.client.clusters.zookeeper_access import ZooKeeperAccess
from emberkeep.client.clusters.zookeeper_ensemble import quorum_of

JOB_MANAGER = "jobmanager"
_MEMORY_SHARE = 0.8


class DaemonStarts:
    """Starts the daemons of one cluster.

    ``config_file``: a configuration file that the daemons read, too; None for no file. ``say`` gets each start as a
    line of text.
    """

    def __init__(
        self, configuration: Configuration, layout: StateLayout, config_file: Path | None, say: Callable[[str], None]
    ) -> None:
        self._configuration = configuration
        self._layout = layout
        self._config_file = config_file
        self._say = say
        self.zookeeper = ZooKeeperAccess(layout, configuration)
        self._links: dict[str, str] = {}  # settings of their encryption

    def stay_unencrypted(self, shape: ClusterShape) -> None:
        """Start daemons without encryption from now on, so that they reach the cluster's live processes.

        Do nothing if the encryption is configured explicitly. ``shape``: the cluster's shape.
        """
        if ENCRYPTION.key in self._configuration.settings:
            return
        self._links = {ENCRYPTION.key: "none"}
        if f"{ENCRYPTION.key}=none" not in shape.definitions:
            self._say(
                "an older release started this cluster without encryption, which its running processes need; "
                "to encrypt it, run `emberkeep cluster down` and `emberkeep cluster up`"
            )

    async def job_manager(
        self, shape: ClusterShape, name: str, port: int, zookeepers: tuple[ZooKeeperRecord, ...]
    ) -> tuple[Daemon, DaemonRecord, Announcement]:
        """Start a JobManager at ``port``, and wait until it has announced itself. Raises Fatal."""
        check_port_free(self._configuration[REST_BIND_ADDRESS], port)
        self._say("starting the JobManager" if name == JOB_MANAGER else f"starting {name}")
        directory = self._layout.root / "jobmanagers" / name if zookeepers else self._layout.job_manager
        own = {"rest.port": str(port), **self._links, **self.high_availability(zookeepers, leads=True)}
        if not shape.nodes:  # the JobManager itself starts task managers when jobs need them
            own["taskmanager.numberOfTaskSlots"] = str(shape.slots)
            own |= {"taskmanager.memory.process.size": shape.memory} if shape.memory else {}
        if zookeepers:
            own["jobmanager.resource-id"] = name
        daemon = start_daemon(DaemonCommand("jobmanager", self._arguments(shape, own), directory / "logs"))
        daemon.outlive()
        try:
            ready = await daemon.ready()
        except asyncio.CancelledError:
            daemon.kill()
            raise
        return daemon, DaemonRecord(name=name, identity=daemon.identity, directory=str(directory)), ready

    def task_manager(self, record: ClusterRecord, node: str) -> tuple[Daemon, DaemonRecord]:
        """Start the task manager of a node. It registers later."""
        shape = record.shape
        name = f"tm-{node}"
        directory = self._layout.working_directory(TaskManagerId(name))
        if self._configuration[WORKING_DIRECTORY]:
            directory /= name  # task managers cannot share a directory
        url = urlsplit(record.url)
        own = {
            "taskmanager.resource-id": name,
            "taskmanager.host": node,
            "taskmanager.numberOfTaskSlots": str(shape.slots),
            "jobmanager.rpc.address": join_host_port(url.hostname or "", url.port or 0),
            "security.token-file": record.token_file,
            "process.taskmanager.working-dir": str(directory),
            **self._links,
            **self.high_availability(record.zookeepers, leads=False),
        }
        if shape.memory:
            own["taskmanager.memory.process.size"] = shape.memory
        elif len(shape.nodes) > 1 and not self._configuration[MEMORY]:
            own["taskmanager.memory.process.size"] = f"{machine_memory_mb() * _MEMORY_SHARE / len(shape.nodes):.0f}m"
        if not self._configuration[CORES]:
            # Make every slot of a local cluster usable, even if the machine has fewer cores than slots.
            own["taskmanager.cpu.cores"] = str(max(os.cpu_count() or 1, shape.slots))
        self._say(f"starting task manager {name}")
        command = DaemonCommand("taskmanager", self._arguments(shape, own), directory / "logs")
        daemon = start_daemon(command)
        daemon.outlive()
        return daemon, DaemonRecord(name=name, identity=daemon.identity, directory=str(directory))

    def high_availability(self, zookeepers: tuple[ZooKeeperRecord, ...], *, leads: bool) -> dict[str, str]:
        """Return a daemon's settings for ZooKeeper. ``leads``: the daemon is a JobManager."""
        if not zookeepers:
            return {}
        quorum = quorum_of(tuple(zookeeper.server for zookeeper in zookeepers))
        own = {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": quorum}
        tls = zookeepers[0].server.tls
        if tls is not None:
            own |= {ZOOKEEPER_TLS.key: "true", ZOOKEEPER_CA_FILE.key: tls.ca}
        return own | self.zookeeper.settings(leads=leads)

    def _arguments(self, shape: ClusterShape, own: dict[str, str]) -> tuple[str, ...]:
        arguments = ["--state-dir", str(self._layout.root)]
        if self._config_file is not None:
            arguments += ["--config", str(self._config_file)]
        for definition in (*shape.definitions, *(f"{key}={value}" for key, value in own.items())):
            arguments += ["-D", definition]
        return tuple(arguments)


def check_port_free(address: str, port: int) -> None:
    """Raise Fatal if the port cannot be bound, e.g. because another process listens there. 0 means any free port."""
    if port == 0:
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise Fatal(
                f"port {port} of {address} cannot be used: {error.strerror}",
                hint="choose another with -D rest.port=PORT; 0 takes any free port",
            ) from None


def machine_memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2

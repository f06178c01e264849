"""A cluster of real processes on this machine, each of which can be stopped, continued, killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from campaign.processes.places import LOOPBACK_ADDRESS, Loopback, Places
from emberkeep.adapters.blobs.files_tree import INCOMING
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.task_managers import TASK_MANAGER_NODE
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon
from emberkeep.client.clusters.leftovers import kill_below, processes_below
from emberkeep.client.clusters.zookeeper_ensemble import (
    ZooKeeperServer,
    plan_ensemble,
    quorum_of,
    start_server,
    wait_until_serving,
)

LEASE = 6.0  # seconds
START_SECONDS = 120.0
_DRIVER = b"emberkeep.daemons.driver"
_STUTTER = 0.15  # seconds of each stop and each run between two
_LOOPBACK = Loopback()
_NO_SETTINGS: Mapping[str, str] = {}
_REPLICATED = {
    "high-availability.type": "zookeeper",
    "high-availability.zookeeper.client.session-timeout": "4s",
}
_SETTINGS = {
    "heartbeat.interval": "500ms",
    "heartbeat.timeout": "4s",
    "job.driver.lease-timeout": f"{LEASE:g}s",
    "security.encryption": "none",  # costs time, and other tests have it
    "log.level": "info",
}
_TASK_MANAGER = {
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.driver-places": "4",
    "taskmanager.memory.process.size": "8g",
    "taskmanager.cpu.cores": "8",
    "taskmanager.standby.drivers": "0",
    "taskmanager.standby.executors": "0",
    "taskmanager.class-archive.build": "false",
}


@dataclass
class Member:
    """A process of the cluster. ``daemon``: None while it is away. ``busy``: a fault holds it."""

    name: str
    kind: str  # jobmanager, taskmanager or zookeeper
    settings: dict[str, str] = field(default_factory=dict)
    server: ZooKeeperServer | None = None
    daemon: Daemon | None = None
    busy: bool = False

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.process.pid


class RealCluster:
    """Use as ``async with``: all members run then. ``directory`` is its own, and is kept afterwards.

    ``zookeepers``: 0 for a job store in SQLite, with one JobManager. ``settings``: of all members.
    ``places``: where they run. ``starts``: starts a JobManager or a task manager.
    """

    def __init__(
        self,
        directory: Path,
        *,
        job_managers: int = 3,
        task_managers: int = 3,
        zookeepers: int = 1,
        settings: Mapping[str, str] = _NO_SETTINGS,
        places: Places = _LOOPBACK,
        starts: Callable[[DaemonCommand], Daemon] = start_daemon,
    ) -> None:
        self.directory = directory
        self._starts = starts
        self.state = directory / "state"
        self._places = places
        servers = tuple(
            msgspec.structs.replace(server, address=places.address(_zookeeper(server.number)))
            for server in plan_ensemble(directory / "zookeeper", zookeepers)
        )
        self._servers = servers
        self._all = {**_SETTINGS, "emberkeep.state-dir": str(self.state), **settings}
        if servers:
            self._all |= {**_REPLICATED, "high-availability.zookeeper.quorum": quorum_of(servers)}
        self.ports = _free_ports(job_managers)
        if not servers:  # nothing else says where the JobManager is
            self._all["jobmanager.rpc.address"] = f"{places.address('jm-1')}:{self.ports[0]}"
        self.zookeepers = [Member(_zookeeper(server.number), "zookeeper", server=server) for server in servers]
        self.job_managers = [
            Member(
                f"jm-{number}",
                "jobmanager",
                {
                    "jobmanager.resource-id": f"jm-{number}",
                    "rest.address": places.address(f"jm-{number}"),
                    "rest.bind-address": places.address(f"jm-{number}"),
                    "rest.port": str(port),
                },
            )
            for number, port in enumerate(self.ports, 1)
        ]
        self.task_managers = [
            Member(
                f"tm-{number}",
                "taskmanager",
                {
                    **{key: value for key, value in _TASK_MANAGER.items() if key not in settings},
                    "taskmanager.resource-id": f"tm-{number}",
                    "taskmanager.host": places.address(f"tm-{number}"),
                    TASK_MANAGER_NODE.key: f"node-{number}",
                },
            )
            for number in range(1, task_managers + 1)
        ]

    @property
    def members(self) -> list[Member]:
        return [*self.zookeepers, *self.job_managers, *self.task_managers]

    @property
    def urls(self) -> list[str]:
        return [f"http://{each.settings['rest.address']}:{each.settings['rest.port']}" for each in self.job_managers]

    @property
    def token(self) -> str:
        definitions = [f"{key}={value}" for key, value in self._all.items()]
        configuration = load_configuration(environ={}, definitions=definitions)
        return load_or_create_token(StateLayout(self.state, configuration).token_file)

    async def __aenter__(self) -> RealCluster:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            await self.complete()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def complete(self) -> None:
        """Start what is away, and wait until all members are ready."""
        # Together: none serves before most of them run.
        await asyncio.gather(*(self.start(member) for member in self.zookeepers))
        _ = self.token  # exists before two processes would create it
        await asyncio.gather(*(self.start(member) for member in (*self.job_managers, *self.task_managers)))

    async def start(self, member: Member) -> None:
        """Start a member unless it runs, and wait until it is ready. Raises Fatal."""
        if member.daemon is not None and member.daemon.process.poll() is None:
            return
        if member.server is not None:
            with self._places.inside(member.name):
                member.daemon = start_server(member.server, self._servers)
            await wait_until_serving(member.server, member.daemon)
            return
        settings = {**self._all, **member.settings}
        if member.kind == "taskmanager":
            settings["process.taskmanager.working-dir"] = str(self._working_directory(member))
        words = tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))
        command = DaemonCommand(member.kind, words, self.directory / "output" / member.name)
        with self._places.inside(member.name):
            member.daemon = self._starts(command)
        await member.daemon.ready(START_SECONDS)

    def kill(self, member: Member) -> None:
        """SIGKILL, also to what is stopped."""
        if member.daemon is not None:
            member.daemon.kill()

    def is_running(self, member: Member) -> bool:
        return member.daemon is not None and member.daemon.process.poll() is None

    def processes(self, *task_managers: Member) -> list[int]:
        """Return the pids of the jobs' processes that these task managers have started; without an argument, of all."""
        chosen = task_managers or self.task_managers
        return [each.pid for each in processes_below([self._working_directory(member) for member in chosen])]

    def drivers(self, *task_managers: Member) -> list[int]:
        """Return the pids of the drivers among these processes, without their JVMs."""
        return [pid for pid in self.processes(*task_managers) if _DRIVER in _command_line(pid)]

    def incoming(self, task_manager: Member) -> Path:
        """Return the directory for files in transfer of a task manager's BLOB cache, which is in the cache's own."""
        return WorkingDirectory(self._working_directory(task_manager)).blobs / INCOMING

    def _working_directory(self, task_manager: Member) -> Path:
        return self.directory / "nodes" / task_manager.name

    def thaw_all(self) -> None:
        """Continue everything that is stopped."""
        for member in self.members:
            if self.is_running(member):
                send(member.pid, signal.SIGCONT)
        for pid in self.processes():
            send(pid, signal.SIGCONT)

    async def close(self) -> None:
        """Kill everything."""
        self.thaw_all()
        for member in reversed(self.members):
            self.kill(member)
        await asyncio.to_thread(kill_below, [self.directory])


def names_of(job_managers: int, task_managers: int, zookeepers: int) -> list[str]:
    """Return the names of the members of such a cluster."""
    return [
        *(_zookeeper(number) for number in range(1, zookeepers + 1)),
        *(f"jm-{number}" for number in range(1, job_managers + 1)),
        *(f"tm-{number}" for number in range(1, task_managers + 1)),
    ]


def _zookeeper(number: int) -> str:
    return f"zk-{number}"


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal. Return False if there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


async def stand_still(pids: list[int], seconds: float, *, stutters: bool = False) -> bool:
    """Stop processes for so long: at once, or again and again. Return False if there was none at the beginning."""
    end, were_there = time.monotonic() + seconds, False
    while True:
        for pid in pids:
            were_there |= send(pid, signal.SIGSTOP)
        await asyncio.sleep(min(_STUTTER, max(0.0, end - time.monotonic())) if stutters else seconds)
        for pid in pids:
            send(pid, signal.SIGCONT)
        if not were_there or not stutters or time.monotonic() >= end:
            return were_there
        await asyncio.sleep(_STUTTER)


def _free_ports(count: int) -> list[int]:
    """Return different ports that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK_ADDRESS, 0))
        return [each.getsockname()[1] for each in sockets]

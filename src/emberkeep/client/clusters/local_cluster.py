"""A local cluster of separate processes: JobManagers, task managers, and ZooKeeper if there are several JobManagers.

``cluster.json`` records what was started. A second ``up`` with the same shape starts what is missing. ``down`` ends
all.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options import (
    CANCELLATION_TIMEOUT,
    CORES,
    MEMORY,
    REST_BIND_ADDRESS,
    REST_PORT,
    WORKING_DIRECTORY,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import TaskManagerId, parse_task_manager_id
from emberkeep.base.started_task_managers import StartedRecord, forget_started, read_started
from emberkeep.client.clusters.cluster_file import (
    ClusterRecord,
    ClusterShape,
    DaemonRecord,
    ZooKeeperRecord,
    read_cluster,
    write_cluster,
)
from emberkeep.client.clusters.daemon_process import Announcement, Daemon, DaemonCommand, start_daemon
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.clusters.leftovers import kill_below, processes_below, send, wait_gone
from emberkeep.client.clusters.zookeeper_ensemble import plan_ensemble, quorum_of, start_server, wait_until_serving
from emberkeep.client.endpoint import join_host_port
from emberkeep.client.rest_client import RestClient

Say = Callable[[str], None]

_REGISTRATION_TIMEOUT = 90.0  # seconds
STOP_MARGIN = 35.0  # seconds on top of the jobs' grace, after which a task manager kills what is left
_POLL = 0.2
_MEMORY_SHARE = 0.8
_MAX_TASK_MANAGERS = 250
_JOB_MANAGER = "jobmanager"


@dataclass(frozen=True)
class UpResult:
    """A cluster that is up, with the URL of its leader.

    ``started`` has the names of the daemons that this call started; empty: all were running.
    """

    record: ClusterRecord
    started: tuple[str, ...]
    url: str


class LocalCluster:
    """The local cluster of one state directory. ``say`` gets each event as a line of text."""

    def __init__(self, configuration: Configuration, layout: StateLayout, config_file: Path | None, say: Say) -> None:
        self._configuration = configuration
        self._layout = layout
        self._config_file = config_file
        self._say = say

    def record(self) -> ClusterRecord | None:
        """Return the record of the cluster that was started last. Raises Fatal."""
        return read_cluster(self._layout.cluster_file)

    async def up(self, shape: ClusterShape, *, as_it_was: bool = False) -> UpResult:
        """Start what does not run yet, and wait until every task manager is registered.

        ``as_it_was``: if some of the cluster's processes run, complete it in its own shape and ignore ``shape``.

        Raises Conflict (a cluster of another shape runs, or another command works on it), Fatal. If a newly started
        cluster fails, its daemons are ended; drivers and executors of the last cluster continue.
        """
        with self._lock():
            record = self.record()
            if record is not None and self._is_left(record):
                shape = record.shape if as_it_was else shape
                if record.shape != shape:
                    raise Conflict(
                        f"another cluster is running here ({_describe(record.shape)})",
                        hint="end it with `emberkeep cluster down` first, or use another --state-dir",
                    )
                return await self._complete(record, shape, [])
            if record is not None:
                self._say("the last cluster here ended without `cluster down`; its unfinished jobs continue")
            started: list[Daemon] = []
            try:
                return await self._complete(None, shape, started)
            except BaseException:
                if record is None:
                    self._end_everything()
                else:
                    self._take_back(started, record)
                raise

    def _take_back(self, started: list[Daemon], before: ClusterRecord) -> None:
        """End the daemons of a start that failed, and restore the record. Processes of the last cluster continue."""
        for daemon in reversed(started):
            daemon.kill()
        write_cluster(self._layout.cluster_file, before)

    async def _complete(self, record: ClusterRecord | None, shape: ClusterShape, started: list[Daemon]) -> UpResult:
        """Start what does not run, and add it to ``started``. Return once all task managers are registered."""
        zookeepers = await self._start_zookeepers(record, shape, started)
        record = await self._start_job_managers(record, shape, zookeepers, started)
        for index, node in enumerate(shape.nodes):
            if index < len(record.task_managers) and record.task_managers[index].is_running:
                continue
            daemon, task_manager = self._start_task_manager(record, node)
            started.append(daemon)
            others = (*record.task_managers[:index], task_manager, *record.task_managers[index + 1 :])
            record = msgspec.structs.replace(record, task_managers=others)
            write_cluster(self._layout.cluster_file, record)
        leader = await self._wait_for_registrations(record, started)
        return UpResult(record, tuple(daemon.command.module for daemon in started), record.url_of(leader))

    def _is_left(self, record: ClusterRecord) -> bool:
        """True if a process of the cluster runs, which expects the others at their previous addresses."""
        if any(daemon.is_running for daemon in record.daemons):
            return True
        return bool(_running(read_started(self._layout.started_task_managers)))

    # --- starting ---------------------------------------------------------------------------------------------------

    async def _start_zookeepers(
        self, old: ClusterRecord | None, shape: ClusterShape, started: list[Daemon]
    ) -> tuple[ZooKeeperRecord, ...]:
        """Start the ZooKeeper servers that do not run, on their existing data. Return the records of all servers."""
        records = () if old is None else old.zookeepers
        servers = tuple(record.server for record in records)
        if len(servers) != shape.zookeepers:
            servers, records = plan_ensemble(self._layout.root / "zookeeper", shape.zookeepers), ()
        if sum(record.daemon.is_running for record in records) < shape.zookeepers:
            self._say("starting ZooKeeper")
        found, launched = [], []
        try:
            for index, server in enumerate(servers):
                if index < len(records) and records[index].daemon.is_running:
                    found.append(records[index])
                    continue
                daemon = start_server(server, servers)
                daemon.outlive()
                launched.append((server, daemon))
                name = f"zookeeper-{server.number}"
                found.append(
                    ZooKeeperRecord(
                        daemon=DaemonRecord(name=name, identity=daemon.identity, directory=server.directory),
                        server=server,
                    )
                )
            for server, daemon in launched:
                await wait_until_serving(server, daemon)
        except BaseException:
            for _, daemon in launched:
                daemon.kill()
            raise
        if old is not None:
            write_cluster(self._layout.cluster_file, msgspec.structs.replace(old, zookeepers=tuple(found)))
        started += [daemon for _, daemon in launched]
        return tuple(found)

    async def _start_job_managers(
        self,
        old: ClusterRecord | None,
        shape: ClusterShape,
        zookeepers: tuple[ZooKeeperRecord, ...],
        started: list[Daemon],
    ) -> ClusterRecord:
        """Start the JobManagers that do not run, at their previous ports. Write and return the cluster's record."""
        known = {} if old is None else dict(zip(old.job_managers, (old.url, *old.standby_urls), strict=True))
        running = {daemon.name: (daemon, url) for daemon, url in known.items() if daemon.is_running}
        ports = {daemon.name: urlsplit(url).port or 0 for daemon, url in known.items()}
        managers: list[tuple[DaemonRecord, str]] = []
        token_file = "" if old is None else old.token_file
        names = [_JOB_MANAGER] if not zookeepers else [f"{_JOB_MANAGER}-{n + 1}" for n in range(shape.job_managers)]
        try:
            for index, name in enumerate(names):
                if name not in running:
                    port = ports.get(name, self._configuration[REST_PORT] if index == 0 else 0)
                    daemon, own, ready = await self._start_job_manager(shape, name, port, zookeepers)
                    started.append(daemon)
                    running[name] = (own, ready.url)
                    token_file = ready.token_file
                managers.append(running[name])
        except BaseException:
            if old is None:  # the record is not written yet, so they could not be found later
                for daemon in started:
                    daemon.kill()
            raise
        record = ClusterRecord(
            url=managers[0][1],
            token_file=token_file,
            shape=shape,
            job_manager=managers[0][0],
            task_managers=() if old is None else old.task_managers,
            standbys=tuple(daemon for daemon, _ in managers[1:]),
            standby_urls=tuple(url for _, url in managers[1:]),
            zookeepers=zookeepers,
        )
        write_cluster(self._layout.cluster_file, record)
        return record

    async def _start_job_manager(
        self, shape: ClusterShape, name: str, port: int, zookeepers: tuple[ZooKeeperRecord, ...]
    ) -> tuple[Daemon, DaemonRecord, Announcement]:
        check_port_free(self._configuration[REST_BIND_ADDRESS], port)
        self._say("starting the JobManager" if name == _JOB_MANAGER else f"starting {name}")
        directory = self._layout.root / "jobmanagers" / name if zookeepers else self._layout.job_manager
        own = {"rest.port": str(port), **_high_availability(zookeepers)}
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

    def _start_task_manager(self, record: ClusterRecord, node: str) -> tuple[Daemon, DaemonRecord]:
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
            **_high_availability(record.zookeepers),
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

    def _arguments(self, shape: ClusterShape, own: dict[str, str]) -> tuple[str, ...]:
        arguments = ["--state-dir", str(self._layout.root)]
        if self._config_file is not None:
            arguments += ["--config", str(self._config_file)]
        for definition in (*shape.definitions, *(f"{key}={value}" for key, value in own.items())):
            arguments += ["-D", definition]
        return tuple(arguments)

    async def _wait_for_registrations(self, record: ClusterRecord, started: list[Daemon]) -> str:
        """Return the address of the JobManager at which all task managers have registered. Raises Fatal."""
        deadline = time.monotonic() + _REGISTRATION_TIMEOUT
        expected = {daemon.name: daemon.identity.pid for daemon in record.task_managers}
        shown = -1 if expected else 0
        async with RestClient(local_endpoint(record, self._layout.cluster_file)) as client:
            while True:
                registered = {tm.id: tm.emberkeep.pid for tm in await client.task_managers()}
                missing = [name for name, pid in expected.items() if registered.get(TaskManagerId(name)) != pid]
                if len(expected) - len(missing) != shown and started:
                    shown = len(expected) - len(missing)
                    self._say(f"{shown} of {len(expected)} task managers registered")
                if not missing:
                    return (await client.overview()).emberkeep.job_manager
                for daemon in started:
                    if daemon.process.poll() is not None:
                        raise await daemon_failure(daemon)
                if time.monotonic() > deadline:
                    raise Fatal(
                        f"not registered after {_REGISTRATION_TIMEOUT:g} s: {', '.join(missing)}",
                        hint=f"their logs are below {self._layout.root / 'taskmanagers'}",
                    )
                await asyncio.sleep(_POLL)

    # --- stopping ---------------------------------------------------------------------------------------------------

    def down(self) -> bool:
        """End the JobManagers, the task managers and what they have started, and ZooKeeper. Blocks.

        Returns False if no process of the cluster was running. Raises Conflict (another command works on the cluster),
        Fatal (something cannot be ended).
        """
        with self._lock():
            return self._end_everything()

    def _end_everything(self) -> bool:
        record = self.record()
        if record is None:
            return False
        grace = self._configuration[CANCELLATION_TIMEOUT] + STOP_MARGIN
        was_running = self._is_left(record)
        # End the JobManager first, so that it cannot take the end of the other processes for job failures. The jobs
        # continue next time.
        self._end(record.job_managers, "JobManager", STOP_MARGIN)
        started = read_started(self._layout.started_task_managers)
        # After SIGTERM, drivers and executors would continue, for the next task manager in that directory.
        task_managers = (*record.task_managers, *_running(started))
        self._end(task_managers, "task manager", grace, signal.SIGQUIT)
        self._end(tuple(zookeeper.daemon for zookeeper in record.zookeepers), "ZooKeeper", STOP_MARGIN)
        directories = {daemon.directory for daemon in record.task_managers} | {each.directory for each in started}
        was_running |= bool(processes_below(map(Path, directories)))
        left = kill_below(map(Path, directories))
        left += [daemon.identity for daemon in (*record.daemons, *task_managers) if daemon.is_running]
        if left:
            pids = ", ".join(str(identity.pid) for identity in left)
            raise Fatal(f"processes of the cluster do not end: {pids}", hint="inspect them with `ps`, then try again")
        for each in started:
            forget_started(self._layout.started_task_managers, each.task_manager)
        self._layout.cluster_file.unlink(missing_ok=True)
        return was_running

    def _end(
        self,
        daemons: tuple[DaemonRecord, ...],
        what: str,
        grace: float,
        number: signal.Signals = signal.SIGTERM,
    ) -> None:
        running = [daemon for daemon in daemons if send(daemon.identity, number)]
        if not running:
            return
        self._say(f"stopping {', '.join(daemon.name for daemon in running)}")
        left = wait_gone((daemon.identity for daemon in running), time.monotonic() + grace)
        for identity in left:
            self._say(f"{what} with pid {identity.pid} did not end in {grace:g} s and is killed")
            send(identity, signal.SIGKILL)
        wait_gone(left, time.monotonic() + STOP_MARGIN)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let only one command at a time change the cluster. Raises Conflict, Fatal."""
        try:
            self._layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._layout.root / "cluster.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Fatal(
                f"cannot use the state directory {self._layout.root}: {error.strerror}",
                hint="choose another with --state-dir or EMBERKEEP_STATE_DIR",
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    "another `emberkeep cluster` command is working on this cluster", hint="wait until it has ended"
                ) from None
            yield
        finally:
            os.close(descriptor)


async def daemon_failure(daemon: Daemon) -> EmberkeepError:
    """Return the error of a daemon that ended too early: the one that it announced, if it announced one."""
    try:
        await daemon.ready()
    except EmberkeepError as error:
        return error
    return daemon.died()


def node_addresses(count: int | None, listed: str | None) -> tuple[str, ...]:
    """Return one address per task manager: those listed, else 127.0.0.1 for one and 127.0.0.2, .3, … for several.

    Raises InvalidInput.
    """
    if listed is None:
        number = 1 if count is None else count
        if not 1 <= number <= _MAX_TASK_MANAGERS:
            raise InvalidInput(f"--task-managers {number}: not from 1 to {_MAX_TASK_MANAGERS}", field="--task-managers")
        return ("127.0.0.1",) if number == 1 else tuple(f"127.0.0.{index + 2}" for index in range(number))
    nodes = tuple(filter(None, (node.strip() for node in listed.split(","))))
    if not nodes or len(set(nodes)) != len(nodes):
        raise InvalidInput(f"--nodes {listed}: expected different addresses, separated by commas", field="--nodes")
    if count is not None and count != len(nodes):
        raise InvalidInput(f"--task-managers {count} but --nodes lists {len(nodes)}", field="--nodes")
    for node in nodes:
        parse_task_manager_id(f"tm-{node}")
    return nodes


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


async def unfinished_jobs(client: RestClient) -> int | None:
    """Return how many jobs have not ended; None if the JobManager does not answer."""
    try:
        return sum(not job.state.is_globally_terminal for job in await client.jobs())
    except RetryLater:
        return None


def _running(started: list[StartedRecord]) -> tuple[DaemonRecord, ...]:
    """Return the live task managers among those that a JobManager has started."""
    live = ((each, each.process()) for each in started)
    return tuple(
        DaemonRecord(name=each.task_manager, identity=identity, directory=each.directory)
        for each, identity in live
        if identity is not None
    )


def _high_availability(zookeepers: tuple[ZooKeeperRecord, ...]) -> dict[str, str]:
    """Return the settings that every process of the cluster gets."""
    if not zookeepers:
        return {}
    quorum = quorum_of(tuple(zookeeper.server for zookeeper in zookeepers))
    return {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": quorum}


def _describe(shape: ClusterShape) -> str:
    count = len(shape.nodes)
    memory = f", {shape.memory} each" if shape.memory else ""
    several = f"{shape.job_managers} JobManagers, {shape.zookeepers} ZooKeepers, " if shape.zookeepers else ""
    nodes = ", ".join(shape.nodes)
    if not nodes:
        return f"{several}task managers of {shape.slots} slots each, started when jobs need them{memory}"
    return f"{several}{count} task manager{'' if count == 1 else 's'} of {shape.slots} slots on {nodes}{memory}"

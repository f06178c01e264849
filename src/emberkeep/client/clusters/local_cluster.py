"""A local cluster of separate processes: JobManagers, task managers, and ZooKeeper if there are several JobManagers.

``cluster.json`` records what was started. A second ``up`` with the same shape starts what is missing. ``down`` stops
all processes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.job_managers import REST_PORT
from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT
from emberkeep.base.configuration.options.task_managers import RESOURCE_ADDRESSES, RESOURCE_DISCOVERY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import TaskManagerId
from emberkeep.client.clusters.cluster_end import ClusterEnd, has_processes, is_left
from emberkeep.client.clusters.cluster_file import (
    ClusterRecord,
    ClusterShape,
    DaemonRecord,
    ZooKeeperRecord,
    read_cluster,
    write_cluster,
)
from emberkeep.client.clusters.daemon_process import Daemon
from emberkeep.client.clusters.daemon_starts import JOB_MANAGER, DaemonStarts
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.clusters.shapes import describe
from emberkeep.client.clusters.zookeeper_ensemble import plan_ensemble, start_server, wait_until_serving
from emberkeep.client.rest_client import RestClient

Say = Callable[[str], None]

_ENDING_SECONDS = 10.0  # for which `up` waits for daemons that were just killed
_REGISTRATION_TIMEOUT = 90.0  # seconds
_POLL = 0.2


@dataclass(frozen=True)
class UpResult:
    """A cluster that is up, with the URL of its leader.

    ``started``: the names of the daemons that this call started; empty if all were running.
    """

    record: ClusterRecord
    started: tuple[str, ...]
    url: str


class LocalCluster:
    """The local cluster of one state directory. ``say`` gets each event as a line of text."""

    def __init__(self, configuration: Configuration, layout: StateLayout, config_file: Path | None, say: Say) -> None:
        self._configuration = configuration
        self._layout = layout
        self._say = say
        self._starts = DaemonStarts(configuration, layout, config_file, say)
        self._end = ClusterEnd(layout, configuration[CANCELLATION_TIMEOUT], say)

    def record(self) -> ClusterRecord | None:
        """Return the record of the cluster that was started last; None if none was started. Raises Fatal."""
        return read_cluster(self._layout.cluster_file)

    async def up(self, shape: ClusterShape, *, as_it_was: bool = False) -> UpResult:
        """Start what does not run yet, and wait until every task manager is registered.

        ``as_it_was``: if some of the cluster's processes run, complete it with its own shape and ignore ``shape``.

        Raises InvalidInput (custom resources for several task managers), Conflict (a cluster with another shape runs,
        or another command works on it), Fatal. If a newly started cluster fails, its daemons are stopped; drivers and
        executors of the last cluster continue.
        """
        self._check_addresses(shape)
        with self._lock():
            record = self.record()
            if record is not None:
                await self._see_ends(record)
                if not record.ca and has_processes(record, self._layout):
                    self._starts.stay_unencrypted(record.shape)
            if record is not None and is_left(record, self._layout):
                shape = record.shape if as_it_was else shape
                if record.shape != shape:
                    raise Conflict(
                        f"another cluster is running here ({describe(record.shape)})",
                        hint="end it with `emberkeep cluster down` first, or use another --state-dir",
                    )
                if shape.zookeepers and self._starts.zookeeper.is_of_older_release:
                    self._say(
                        "an older release started this cluster, so its ZooKeeper is open to all users of this machine; "
                        "to protect it, run `emberkeep cluster down` and `emberkeep cluster up --ha`"
                    )
                return await self._complete(record, shape, [])
            if record is not None:
                self._say("the last cluster here ended without `cluster down`; its unfinished jobs continue")
            if shape.zookeepers:
                self._starts.zookeeper.prepare()
            started: list[Daemon] = []
            try:
                return await self._complete(None, shape, started)
            except BaseException:
                if record is None:
                    self._end_everything()
                else:
                    self._take_back(started, record)
                raise

    async def _see_ends(self, record: ClusterRecord) -> None:
        """Wait until daemons that were just killed have ended: until then they would count as running."""
        deadline = time.monotonic() + _ENDING_SECONDS
        while time.monotonic() < deadline:
            if not any(daemon.is_ending for daemon in record.daemons):
                return
            await asyncio.sleep(_POLL)

    def _check_addresses(self, shape: ClusterShape) -> None:
        """Raise InvalidInput if several task managers of this machine would offer the same GPUs."""
        for key in (RESOURCE_ADDRESSES.key, RESOURCE_DISCOVERY.key):
            if self._configuration.texts().get(key) and len(shape.nodes) > 1:
                raise InvalidInput(
                    f"{key} is set for {len(shape.nodes)} task managers on this machine, which would all offer the "
                    "same addresses",
                    field=key,
                    hint="use one task manager, or start the others with `emberkeep taskmanager` and own addresses",
                )

    def _take_back(self, started: list[Daemon], before: ClusterRecord) -> None:
        """Stop the daemons of a start that failed, and restore the record. Processes of the last cluster continue."""
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
            daemon, task_manager = self._starts.task_manager(record, node)
            started.append(daemon)
            others = (*record.task_managers[:index], task_manager, *record.task_managers[index + 1 :])
            record = msgspec.structs.replace(record, task_managers=others)
            write_cluster(self._layout.cluster_file, record)
        leader = await self._wait_for_registrations(record, started)
        self._starts.zookeeper.signed()
        return UpResult(record, tuple(daemon.command.module for daemon in started), record.url_of(leader))

    # --- starting ---------------------------------------------------------------------------------------------------

    async def _start_zookeepers(
        self, old: ClusterRecord | None, shape: ClusterShape, started: list[Daemon]
    ) -> tuple[ZooKeeperRecord, ...]:
        """Start the ZooKeeper servers that do not run, on their existing data. Return the records of all servers."""
        records = () if old is None else old.zookeepers
        servers = tuple(record.server for record in records)
        if len(servers) != shape.zookeepers:
            servers, records = plan_ensemble(self._layout.zookeeper, shape.zookeepers, self._starts.zookeeper.tls()), ()
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
        token_file, ca = ("", "") if old is None else (old.token_file, old.ca)
        names = [JOB_MANAGER] if not zookeepers else [f"{JOB_MANAGER}-{n + 1}" for n in range(shape.job_managers)]
        try:
            for index, name in enumerate(names):
                if name not in running:
                    port = ports.get(name, self._configuration[REST_PORT] if index == 0 else 0)
                    daemon, own, ready = await self._starts.job_manager(shape, name, port, zookeepers)
                    started.append(daemon)
                    running[name] = (own, ready.url)
                    token_file, ca = ready.token_file, ready.ca
                managers.append(running[name])
        except BaseException:
            if old is None:  # the record is not written yet, so nothing could find these daemons later
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
            ca=ca,
        )
        write_cluster(self._layout.cluster_file, record)
        return record

    async def _wait_for_registrations(self, record: ClusterRecord, started: list[Daemon]) -> str:
        """Return the address of the JobManager at which all task managers have registered. Raises Fatal.

        There may be no leader for longer than a client waits: ZooKeeper keeps the session of one that was killed.
        """
        deadline = time.monotonic() + _REGISTRATION_TIMEOUT
        expected = {daemon.name: daemon.identity.pid for daemon in record.task_managers}
        shown = -1 if expected else 0
        async with RestClient(local_endpoint(record, self._layout.cluster_file)) as client:
            while True:
                try:
                    registered = {tm.id: tm.emberkeep.pid for tm in await client.task_managers()}
                    missing = [name for name, pid in expected.items() if registered.get(TaskManagerId(name)) != pid]
                    if len(expected) - len(missing) != shown and started:
                        shown = len(expected) - len(missing)
                        self._say(f"{shown} of {len(expected)} task managers registered")
                    if not missing:
                        return (await client.overview()).emberkeep.job_manager
                except RetryLater as error:
                    missing = [error.message]
                for daemon in started:
                    if daemon.process.poll() is not None:
                        raise await daemon_failure(daemon)
                if time.monotonic() > deadline:
                    raise Fatal(
                        f"not complete after {_REGISTRATION_TIMEOUT:g} s: {', '.join(missing)}",
                        hint=f"their logs are below {self._layout.root / 'taskmanagers'}",
                    )
                await asyncio.sleep(_POLL)

    # --- stopping ---------------------------------------------------------------------------------------------------

    def down(self) -> bool:
        """Stop the JobManagers, the task managers and what they have started, and ZooKeeper. Blocks.

        Returns False if no process of the cluster was running. Raises Conflict (another command works on the cluster),
        Fatal (a process cannot be stopped).
        """
        with self._lock():
            return self._end_everything()

    def _end_everything(self) -> bool:
        record = self.record()
        return record is not None and self._end.run(record)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let only one command at a time change the cluster. Raises Conflict, Fatal."""
        try:
            make_private(self._layout.root)
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
    """Return the error of a daemon that ended too early: its announced error, if there is one."""
    try:
        await daemon.ready()
    except EmberkeepError as error:
        return error
    return daemon.died()


async def unfinished_jobs(client: RestClient) -> int | None:
    """Return how many jobs have not ended; None if the JobManager does not answer."""
    try:
        return sum(not job.state.is_globally_terminal for job in await client.jobs())
    except RetryLater:
        return None

"""Several JobManagers over a ZooKeeper of their own, which can be killed and replaced."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import psutil

from bench.commands import end
from bench.daemons import Server
from bench.leader_poll import LIMIT_SECONDS
from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon
from emberkeep.client.clusters.zookeeper_ensemble import plan_ensemble, quorum_of, start_server, wait_until_serving
from emberkeep.client.rest_client import RestClient

_POLL = 0.1


@dataclass(frozen=True)
class Member:
    """One JobManager."""

    daemon: Daemon
    server: Server

    def client(self) -> RestClient:
        """Asks it once, and nobody else."""
        return RestClient(self.server.endpoint, patience=0.0)


class JobManagers:
    """Use as ``async with``: the ZooKeeper runs then, and nobody leads before ``add``."""

    def __init__(self, directory: Path) -> None:
        self.members: list[Member] = []
        self._directory = directory
        (self._zookeeper,) = plan_ensemble(directory / "zookeeper", 1)
        self._started: list[Daemon] = []

    async def __aenter__(self) -> JobManagers:
        daemon = start_server(self._zookeeper, (self._zookeeper,))
        self._started.append(daemon)
        try:
            await wait_until_serving(self._zookeeper, daemon)
        except BaseException:
            daemon.kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in reversed(self._started):
            await asyncio.to_thread(end, daemon.process)

    @property
    def configuration(self) -> Configuration:
        """What each process of the cluster is told."""
        return load_configuration(environ={}, definitions=self.definitions)

    @property
    def token(self) -> str:
        return self.members[0].server.token

    async def add(self) -> None:
        """Start another one; returns when it stands by, or leads."""
        name = f"jobmanager-{len(self._started)}"
        definitions = [*self.definitions, "rest.port=0", f"jobmanager.resource-id={name}", "log.level=warning"]
        arguments = tuple(part for definition in definitions for part in ("-D", definition))
        daemon = start_daemon(DaemonCommand("jobmanager", arguments, self._directory / name))
        self._started.append(daemon)
        ready = await daemon.ready()
        server = Server(
            urlsplit(ready.url).netloc, psutil.Process(daemon.process.pid), load_token(Path(ready.token_file))
        )
        self.members.append(Member(daemon, server))

    async def leader(self) -> Member:
        """The one that answers for all. Raises SystemExit when there is none in time."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            for member in self.members:
                try:
                    async with member.client() as client:
                        address = (await client.overview()).emberkeep.job_manager
                except RetryLater:
                    continue
                return next(member for member in self.members if member.server.address == address)
            await asyncio.sleep(_POLL)
        raise SystemExit(f"no JobManager is the leader after {LIMIT_SECONDS:g} s")

    def kill(self, member: Member) -> None:
        """SIGKILL."""
        self.members.remove(member)
        self._started.remove(member.daemon)
        member.daemon.kill()

    @property
    def definitions(self) -> list[str]:
        """The settings of each process of the cluster, as KEY=VALUE."""
        return [
            f"emberkeep.state-dir={self._directory / 'state'}",
            "high-availability.type=zookeeper",
            f"high-availability.zookeeper.quorum={quorum_of((self._zookeeper,))}",
            "security.encryption=none",  # as the stub nodes
        ]

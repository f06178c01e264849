"""Two JobManagers and task managers as processes, each with a way of its own to ZooKeeper that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.configuration.layout import CA_FILE
from emberkeep.base.errors import Absent, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.base.tls.contexts import client_context
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon
from emberkeep.client.clusters.leftovers import kill_below
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.conditions import DEADLINE
from tests.integration.proxies import Proxy
from tests.integration.zookeepers import Ensemble
from tests.support.live_files import files_below
from tests.support.no_progress import NoProgress

HEARTBEAT_SECONDS, LEASE_SECONDS = 6.0, 8.0
SETTINGS = {
    "high-availability.type": "zookeeper",
    "high-availability.zookeeper.client.session-timeout": "4s",
    "heartbeat.interval": "500ms",
    "heartbeat.timeout": f"{HEARTBEAT_SECONDS:g}s",
    "job.driver.lease-timeout": f"{LEASE_SECONDS:g}s",
    "taskmanager.orphan-timeout": "60s",
    "rest.port": "0",
}
# Without Spark. Argument: a file; ends once it is there.
PLAIN = """
import sys, time
from pathlib import Path

print("runs", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


@dataclass
class Member:
    """A JobManager, its way to ZooKeeper, and all others' way to it."""

    address: str  # where it listens
    advertised: str
    to_zookeeper: Proxy
    to_it: Proxy


class Site:
    """Two JobManagers and a task manager, as processes."""

    def __init__(self, directory: Path, ensemble: Ensemble) -> None:
        self.directory = directory
        self.members: list[Member] = []
        self._ensemble = ensemble
        self._daemons: list[Daemon] = []
        self._by_name: dict[str, Daemon] = {}
        self._proxies: list[Proxy] = []
        self._state = directory / "state"

    async def add_job_manager(self, settings: dict[str, str] | None = None) -> Member:
        name = f"jm-{len(self.members) + 1}"
        to_zookeeper = await self._open(Proxy(self._ensemble.hosts))
        host = f"127.0.0.{100 + len(self.members)}"
        own = {"jobmanager.resource-id": name, "rest.address": host, "rest.bind-address": "127.0.0.1"} | (
            settings or {}
        )
        port = urlsplit(await self._start("jobmanager", own, to_zookeeper.address, name)).port
        assert port is not None
        address = f"127.0.0.1:{port}"
        to_it = await self._open(Proxy(address), host, port)
        self.members.append(Member(address, to_it.address, to_zookeeper, to_it))
        return self.members[-1]

    async def _open(self, proxy: Proxy, host: str = "127.0.0.1", port: int = 0) -> Proxy:
        self._proxies.append(proxy)
        await proxy.open(host, port)
        return proxy

    async def add_task_manager(self) -> Proxy:
        """Its way to ZooKeeper."""
        to_zookeeper = await self._open(Proxy(self._ensemble.hosts))
        own = {"taskmanager.host": "127.0.0.2", "taskmanager.resource-id": "tm-1"}
        await self._start("taskmanager", own, to_zookeeper.address, "tm-1")
        return to_zookeeper

    async def _start(self, module: str, own: dict[str, str], zookeeper: str, name: str) -> str:
        """Its URL."""
        places = {"emberkeep.state-dir": str(self._state), "high-availability.zookeeper.quorum": zookeeper}
        settings = {**SETTINGS, **places, **own}
        arguments = tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))
        daemon = start_daemon(DaemonCommand(module, arguments, self.directory / name))
        self._daemons.append(daemon)
        self._by_name[name] = daemon
        return (await daemon.ready()).url

    async def stop(self, member: Member) -> None:
        """SIGKILL to a JobManager; nobody waits for its session."""
        name = f"jm-{self.members.index(member) + 1}"
        await member.to_it.close()
        await asyncio.to_thread(self._by_name[name].kill)

    async def logged(self, name: str, text: str) -> bool:
        """Whether a process has written this to its log."""
        logs = self._state.glob(f"*/{name}/logs/*.log")
        return any(text in path.read_text(errors="replace") for path in logs)

    def data(self) -> set[Path]:
        """Everything that jobs have in the storage."""
        kinds = (self._state / "storage" / kind for kind in ("blobs", "checkpoints", "graphs"))
        return files_below(*kinds)

    async def close(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        for daemon in reversed(self._daemons):
            await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(kill_below, [self._state / "taskmanagers" / "tm-1"])

    # --- asking -----------------------------------------------------------------------------------------------------

    def client(self, member: Member) -> RestClient:
        """Asks it once, and whom it sends us on to."""
        token = load_token(self._state / "token")
        return RestClient(Endpoint(f"https://{member.address}", token, ca=self._ca), patience=0.0)

    async def readiness(self, member: Member) -> tuple[int, str]:
        """Status and text."""
        connector = aiohttp.TCPConnector(ssl=client_context(self._ca))
        url = f"https://{member.address}/v1/readiness"
        async with aiohttp.ClientSession(connector=connector) as client, client.get(url) as answer:
            return answer.status, await answer.text()

    @property
    def _ca(self) -> str:
        return str(self._state / "tls" / CA_FILE)

    async def leads(self, member: Member) -> bool:
        """Whether it answers for itself."""
        try:
            async with self.client(member) as client:
                leader = (await client.overview()).emberkeep.job_manager
        except (RetryLater, UnknownOutcome):
            return False
        return leader == member.advertised

    async def submit(self, member: Member, gate: Path) -> JobId:
        """Raises RetryLater."""
        script = self.directory / "plain.py"
        script.write_text(PLAIN)
        prepared = prepare(Program(str(script), None, (str(gate),)), SparkOptions(), {}, {})
        async with self.client(member) as client:
            return (await client.submit(await upload(client, prepared, NoProgress()))).jobid

    async def job(self, member: Member, job_id: JobId) -> JobDetailsInfo | None:
        """None: nobody answers there at present, or who does has not heard of the job: a leader that is none any more
        may not know that yet."""
        try:
            async with self.client(member) as client:
                return await client.job(job_id)
        except (Absent, RetryLater, UnknownOutcome):
            return None

    async def runs(self, member: Member, job_id: JobId, pid: int = 0) -> int:
        """The pid of its driver; 0 while it does not run, or as another process than ``pid``."""
        job = await self.job(member, job_id)
        if job is None or job.state is not JobStatus.RUNNING or job.emberkeep.driver is None:
            return 0
        return job.emberkeep.driver.pid if pid in (0, job.emberkeep.driver.pid) else 0

    async def has_finished(self, member: Member, job_id: JobId) -> bool:
        job = await self.job(member, job_id)
        return job is not None and job.state is JobStatus.FINISHED and job.emberkeep.attempt == 1


async def holds(condition: Callable[[], Awaitable[object]], what: str) -> object:
    """Wait until it does; returns what it gave."""
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while not (found := await condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {DEADLINE:g} s: {what}")
        await asyncio.sleep(0.1)
    return found


async def submitted(site: Site, member: Member, gate: Path) -> JobId | None:
    try:
        return await site.submit(member, gate)
    except (RetryLater, UnknownOutcome):
        return None

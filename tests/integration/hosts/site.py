"""A cluster on hosts of its own, started with the documented commands for several machines."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.commands import SMALL, Running
from tests.integration.conditions import DEADLINE, until
from tests.integration.hosts.host import SHARED, Host
from tests.integration.hosts.network import LAN, OUTSIDE, PRIVATE, Network, Segment
from tests.integration.hosts.zookeepers import ZooKeeperHosts

USER, UID = "emberkeep", 4711  # who runs the cluster on each host
CONFIG = "/etc/emberkeep/config.yaml"
TLS = ".local/state/emberkeep/tls"  # below the home directory
PORT, SPARK_UI_PORT = 8081, 8082
OUTER_PORT, OUTER_SPARK_UI_PORT = 443, 444  # of a router
AGENT_PORT, OUTER_AGENT_PORT = 6122, 7122
PAUSE = 1.0  # seconds between two questions to a JobManager, each of which a process of its own asks
# Losses are noticed within seconds. Test processes are small, and no machine is spent on standbys and class archives.
SETTINGS = {
    "heartbeat.interval": "500ms",
    "heartbeat.timeout": "6s",
    "job.driver.lease-timeout": "8s",
    "executor.backoff.initial": "100ms",
    "high-availability.zookeeper.client.session-timeout": "4s",
    "rest.port": str(PORT),
    "rest.spark-ui.port": str(SPARK_UI_PORT),
    "taskmanager.memory.process.size": "3g",
    "taskmanager.cpu.cores": "2",
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.standby.drivers": "0",
    "taskmanager.standby.executors": "0",
    "taskmanager.class-archive.build": "false",
}


# Prints what is at a URL. Follows redirects to the leader, as a browser does.
FETCH = """
import ssl, sys
from urllib.request import Request, urlopen

headers = {"Authorization": "Bearer " + open("/etc/emberkeep/token").read(), "Accept": sys.argv[2]}
context = ssl.create_default_context(cafile="/etc/emberkeep/ca.pem")
with urlopen(Request(sys.argv[1], headers=headers), timeout=20, context=context) as reply:
    print(reply.read().decode())
"""


class HostedCluster:
    """JobManagers, task managers and servers of ZooKeeper, each on a host.

    They call each other by name, and JobManagers have an interface for their users as well; nothing else can be
    reached from there. With ``by_address`` all are at one switch, and call each other by address. With ``hidden``, the
    JobManagers and the first task manager are each behind a router, and are called by the name of that router; the
    ports of their daemons are others there.

    ``zookeepers``: how many hosts have a server of ZooKeeper and nothing else. With 0, each JobManager's host has one.
    """

    credentials = (
        *("-D", "security.tls.ca=/etc/emberkeep/ca.pem"),
        *("-D", "security.token-file=/etc/emberkeep/token"),
    )

    def __init__(
        self,
        network: Network,
        job_managers: int = 3,
        task_managers: int = 3,
        families: tuple[int, ...] = (4, 6),
        *,
        by_address: bool = False,
        hidden: bool = False,
        zookeepers: int = 1,
    ) -> None:
        self.network = network
        self.by_address = by_address
        self.port = OUTER_PORT if hidden else PORT  # of JobManagers
        self._families = families
        self._routers: dict[str, Host] = {}  # by the name of the host behind it
        users, servers = ((LAN,), (LAN,)) if by_address else ((OUTSIDE,), (LAN, OUTSIDE))
        own = [network.add(f"zk-{number + 1}", families=families) for number in range(zookeepers)]
        self.job_managers = [self._add(f"jm-{number + 1}", servers, hidden=hidden) for number in range(job_managers)]
        self.task_managers = [
            self._add(f"tm-{number + 1}", (LAN,), hidden=hidden and number == 0) for number in range(task_managers)
        ]
        self.zookeeper = ZooKeeperHosts(own or self.job_managers, self.called)
        self.client = network.add("client", *users, families=families)
        self.client.namespaces.run("umount", "/mnt/shared")
        self.any_address = "0.0.0.0" if 4 in families else "::"
        self._daemons: dict[str, Running] = {}
        self._hosts = [*self.job_managers, *self.task_managers]
        for host in (*self._hosts, *own):
            host.add_user(USER, UID)
        os.chown(network.shared, UID, UID)
        self._token = secrets.token_hex(32)
        self._login = f"digest:emberkeep:{secrets.token_hex(16)}"

    # --- starting -----------------------------------------------------------------------------------------------------

    def _add(self, name: str, segments: tuple[Segment, ...], *, hidden: bool) -> Host:
        if not hidden:
            return self.network.add(name, *segments, families=self._families)
        host = self.network.add(name, PRIVATE, families=self._families)
        self._routers[name] = router = self.network.add(f"{name}-router", *segments, PRIVATE, families=self._families)
        ports = {OUTER_PORT: PORT, OUTER_SPARK_UI_PORT: SPARK_UI_PORT, OUTER_AGENT_PORT: AGENT_PORT}
        self.network.hide(host, router, ports)
        return host

    def called(self, host: Host) -> str:
        """How the others call a host."""
        host = self._routers.get(host.name, host)
        return host.address if self.by_address else host.name

    def prepare(self) -> None:
        """Write one configuration file everywhere, and give each host a certificate and the client what it needs."""
        self._texts = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": self.zookeeper.quorum(),
            "high-availability.cluster-id": "production",
            "high-availability.storageDir": str(SHARED / "emberkeep"),
            "security.token-file": "/etc/emberkeep/token",
            "high-availability.zookeeper.client.authorization-file": "/etc/emberkeep/zookeeper-login",
            **SETTINGS,
        }
        for host in self._hosts:
            self.configure(host, self._texts)
        first = self.job_managers[0]
        first.done("emberkeep", "security", "init", "--host", self.called(first), user=USER)
        bundles = self.network.shared / "bundles"
        for host in self._hosts[1:]:
            bundle = ("security", "bundle", "--host", self.called(host), str(SHARED / "bundles" / host.name))
            first.done("emberkeep", *bundle, user=USER)
            tls = host.disk / "home" / USER / TLS
            shutil.copytree(bundles / host.name, tls)
            for path in (*tls.parents[0:3], tls, *tls.iterdir()):
                os.chown(path, UID, UID)
            tls.chmod(0o700)
        self.client.write("/etc/emberkeep/ca.pem", (first.disk / "home" / USER / TLS / "ca.pem").read_text())
        self._hand_out_token()

    def configure(self, host: Host, texts: Mapping[str, str]) -> None:
        host.write(CONFIG, "".join(f"{key}: '{value}'\n" for key, value in texts.items()))
        write_secret(host, "zookeeper-login", self._login)

    def _hand_out_token(self) -> None:
        for host in self._hosts:
            write_secret(host, "token", self._token)
        self.client.write("/etc/emberkeep/token", self._token, 0o600)

    def replace_token(self) -> None:
        """Give all hosts another one. Nothing of the cluster may run."""
        self._token = secrets.token_hex(32)
        self._hand_out_token()

    def replace_certificates(self) -> None:
        """Give each host a certificate of a new bundle, by the documented steps. All daemons may run."""
        first = self.job_managers[0]
        for host in self._hosts:
            name = f"new-{host.name}"
            bundle = ("security", "bundle", "--host", self.called(host), str(SHARED / "bundles" / name))
            first.done("emberkeep", *bundle, user=USER)
            aside = host.disk / "home" / USER / TLS / "node.new"
            shutil.copy(self.network.shared / "bundles" / name / "node.pem", aside)
            os.chown(aside, UID, UID)
            aside.chmod(0o600)
            aside.replace(aside.with_name("node.pem"))

    def certificates(self, port: int) -> list[str]:
        """What the JobManagers show at their port, and the task managers at ``port``, as another host gets it."""
        ports = {**dict.fromkeys(self.job_managers, self.port), **dict.fromkeys(self.task_managers, port)}
        shows = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], int(sys.argv[2])), timeout=20))"
        asking = self.zookeeper.hosts[0]
        return [asking.done("python", "-c", shows, self.called(host), str(number)) for host, number in ports.items()]

    def boot(self, host: Host) -> None:
        """Start a host that was killed, and give it its configuration again, which was not on its disk."""
        self.network.start(host)
        self.configure(host, self._texts)
        write_secret(host, "token", self._token)

    def start(self, task_managers: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Start ZooKeeper and all daemons; return when the task managers have registered.

        ``task_managers``: settings of single ones, by host name.
        """
        for host in self.zookeeper.hosts:
            self.start_zookeeper(host)
        for host in self.job_managers:
            self.start_job_manager(host)
        for host in self.task_managers:
            self.start_task_manager(host, (task_managers or {}).get(host.name, {}))
        until(lambda: self.registered() == len(self.task_managers), self.story, pause=PAUSE)

    def start_zookeeper(self, host: Host) -> None:
        self._daemons[f"ZooKeeper on {host.name}"] = self.zookeeper.start(host, USER, self.any_address)

    def stop_daemon(self, host: Host) -> None:
        """End a JobManager or a task manager by SIGTERM."""
        host.namespaces.run("pkill", "-TERM", "-f", "emberkeep.daemons.(job|task)manager")
        self._daemons[host.name].wait()

    def start_job_manager(self, host: Host, settings: Mapping[str, str] | None = None) -> None:
        settings = {"rest.address": self.called(host), "rest.bind-address": self.any_address, **(settings or {})}
        if host.name in self._routers:
            settings |= {"rest.port": str(OUTER_PORT), "rest.bind-port": str(PORT)}
            settings |= {"rest.spark-ui.port": str(OUTER_SPARK_UI_PORT), "rest.spark-ui.bind-port": str(SPARK_UI_PORT)}
        self._daemons[host.name] = host.start(
            "emberkeep", "jobmanager", "--config", CONFIG, *_given(settings), user=USER
        )

    def start_task_manager(self, host: Host, settings: Mapping[str, str]) -> None:
        # What is set on a machine, such as its clock, is so for its jobs as well.
        of_host = {"taskmanager.job-environment": ",".join(host.environment)} if host.environment else {}
        given = {"taskmanager.host": self.called(host), **of_host, **settings}
        if host.name in self._routers:
            given |= {"taskmanager.bind-host": self.any_address}
            given |= {"taskmanager.rpc.port": str(OUTER_AGENT_PORT), "taskmanager.rpc.bind-port": str(AGENT_PORT)}
        words = ("taskmanager", "--config", CONFIG, *_given(given))
        self._daemons[host.name] = host.start("emberkeep", *words, user=USER)

    # --- asking, as a user on the client's host -----------------------------------------------------------------------

    def command(self, *words: str, seconds: float = DEADLINE) -> str:
        """Run a command of the client that must succeed, against whichever JobManager is up; return its output."""
        where = ("--url", self.url(), *self.credentials)
        ended = self.client.run("emberkeep", words[0], *where, *words[1:], seconds=seconds)
        assert ended.code == 0, f"{' '.join(words)}: {ended}"
        return ended.out

    def url(self) -> str:
        """Of the first JobManager that is up."""
        return self.url_of(next(host for host in self.job_managers if host.is_up))

    def url_of(self, host: Host) -> str:
        return f"https://{join_host_port(self.called(host), self.port)}"

    def fetch(self, path: str, accept: str = "application/json") -> str | None:
        """Return a resource or a page as the client's host gets it; None while no leader answers."""
        ended = self.client.run("python", "-c", FETCH, f"{self.url()}{path}", accept)
        return ended.out if ended.code == 0 else None

    def registered(self) -> int:
        """How many task managers have registered; 0 while nobody leads."""
        found = self.fetch("/v1/overview")
        return 0 if found is None else int(json.loads(found)["taskmanagers"])

    def submit(self, script: str, *options: str, arguments: tuple[str, ...] = (), executors: int = 1) -> str:
        number = str(executors)
        return self.command("submit", "-q", *SMALL, "--num-executors", number, *options, script, *arguments).strip()

    def job(self, job_id: str) -> JobDetailsInfo | None:
        """The job as the leader shows it; None while no leader answers."""
        found = self.fetch(f"/v1/jobs/{job_id}")
        return None if found is None else msgspec.json.decode(found, type=JobDetailsInfo)

    def wait_for(self, job_id: str, condition: Callable[[JobDetailsInfo], object], what: str) -> JobDetailsInfo:
        """Return the job once it fulfils the condition. Fails if it ends before."""

        def look() -> JobDetailsInfo | None:
            job = self.job(job_id)
            if job is None or condition(job):
                return job
            assert not job.state.is_globally_terminal, f"{what}: {job}\n{self.story()}"
            return None

        return until(look, lambda: f"{what}: {self.job(job_id)}\n{self.story()}", pause=PAUSE)

    def wait_for_attempt(self, job_id: str, attempt: int) -> None:
        """Wait until that attempt of the driver, or a later one, runs."""
        self.wait_for(
            job_id,
            lambda job: job.emberkeep.attempt >= attempt and job.state is JobStatus.RUNNING,
            f"attempt {attempt} runs",
        )

    def running(self, job_id: str) -> JobDetailsInfo:
        """The job, once the leader knows its driver."""
        return self.wait_for(job_id, lambda job: job.emberkeep.driver, "the leader knows the driver")

    def leader(self) -> Host:
        """The host whose JobManager leads, once there is one."""

        def look() -> Host | None:
            found = self.fetch("/v1/overview")
            leader = "" if found is None else json.loads(found)["emberkeep"]["job-manager"]
            running = (host for host in self.job_managers if host.is_up)
            return next((host for host in running if join_host_port(self.called(host), self.port) == leader), None)

        return until(look, self.story, pause=PAUSE)

    def driver_host(self, job: JobDetailsInfo) -> Host:
        driver = job.emberkeep.driver
        assert driver is not None
        return next(
            host for host in self.task_managers if driver.taskmanager_id == f"tm-{self.called(host).replace(':', '-')}"
        )

    def logs(self, host: Host) -> list[str]:
        """The texts of the logs that the daemon on a host has written."""
        directory = host.disk / "home" / USER / ".local"
        return [log.read_text() for log in sorted(directory.rglob("logs/*manager.log"))]

    def story(self) -> str:
        """What the daemons and Spark's processes printed last, and the warnings in the daemons' logs."""
        parts = []
        for name, daemon in self._daemons.items():
            parts += [f"--- {name}", daemon.out[-500:], daemon.err[-1500:]]
        for host in self._hosts:
            for log in self.logs(host):
                told = [line for line in log.splitlines() if '"level":"info"' not in line.replace(" ", "")]
                parts += [f"--- log of {host.name}", *(line[:600] for line in told[-8:])]
            for path in sorted((host.disk / "home" / USER / ".local").rglob("logs/jobs/**/*.stderr")):
                parts += [f"--- {path.parent.name}/{path.name} on {host.name}", path.read_text()[-1500:]]
        return "\n".join(parts)


def _given(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))


def write_secret(host: Host, name: str, text: str) -> None:
    path = f"/etc/emberkeep/{name}"
    host.write(path, f"{text}\n", 0o600)
    os.chown(host.path(path), UID, UID)


def own_files(directory: Path) -> None:
    """Give the cluster's user what a test has written below the shared directory."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, UID, UID)

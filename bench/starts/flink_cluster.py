"""A Flink cluster on this machine: JobManagers over a ZooKeeper, task managers of one slot, a SQL job with state."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from yarl import URL

from bench.clusters import free_port
from emberkeep.client.clusters.zookeeper_ensemble import plan_ensemble, quorum_of, start_server, wait_until_serving
from emberkeep.spark.java import find_java
from tools import flink_jar

T = TypeVar("T")

_START_SECONDS = 300.0
(_PY4J,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
_POLL = 0.02
_REPLY_SECONDS = 5.0
_ADDRESS = "127.0.0.1"
# What Flink's own configuration file gives Java 17.
_EXPORTS = ("java.base/sun.net.util", "java.rmi/sun.rmi.registry", "java.security.jgss/sun.security.krb5")
_OPENS = (
    *("java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
)
_JVM = (
    "-Xmx512m",
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS),
)
_LEADS = "was granted leadership"
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# Flink's scripts derive these from the size of the process.
_MEMORY = {
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.task.heap.size": "384m",
    "taskmanager.memory.task.off-heap.size": "0b",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}
_LOG = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m%n
"""
# A running count of each key: as many keys, and as much state, as `bench/jobs/recovering.py` has.
_STATEMENTS = (
    """CREATE TEMPORARY TABLE numbers (k INT, t AS PROCTIME()) WITH ('connector' = 'datagen',
       'rows-per-second' = '20000', 'fields.k.min' = '0', 'fields.k.max' = '{last}')""",
    "CREATE TEMPORARY TABLE nothing (k INT, n BIGINT) WITH ('connector' = 'blackhole')",
    """INSERT INTO nothing SELECT k, COUNT(*) OVER
       (PARTITION BY k ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM numbers""",
)


@dataclass
class FlinkCluster:
    """A running cluster.

    ``daemons``: processes by name; a killed one is taken out. ``rest_ports``: of all JobManagers, by name.
    """

    java: Path
    classes: str
    directory: Path
    settings: Mapping[str, str]
    environment: Mapping[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    rest_ports: dict[str, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def add_job_manager(self) -> str:
        """Start a JobManager, and return its name."""
        port = free_port()
        own = {"rest.port": str(port), "jobmanager.rpc.port": str(free_port())}
        name = self._start("jobmanager", _JOB_MANAGER, own)
        self.rest_ports[name] = port
        return name

    def add_task_manager(self) -> str:
        """Start a task manager, and return its name."""
        return self._start("taskmanager", _TASK_MANAGER, _MEMORY)

    def kill(self, name: str) -> float:
        """Kill a process with SIGKILL. Return when (Unix seconds)."""
        process = self.daemons.pop(name)
        killed = time.time()
        process.send_signal(signal.SIGKILL)
        process.wait()
        return killed

    def submit(self, keys: int) -> None:
        """Submit the job to the leader, from a JVM that ends afterwards."""
        leader = URL(self.leader_url())
        port, secret = launch_gateway(
            jarpath=str(_PY4J),
            classpath=self.classes,
            javaopts=[*_JVM],
            java_path=str(self.java),
            die_on_exit=True,
            enable_auth=True,
            cwd=str(self.directory),
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
        try:
            flink = gateway.jvm.org.apache.flink
            configuration = flink.configuration.Configuration()
            own = {"execution.target": "remote", "rest.address": str(leader.host), "rest.port": str(leader.port)}
            for key, value in {**self.settings, **own, "pipeline.name": "recovering"}.items():
                configuration.setString(key, value)
            kind = flink.table.api.EnvironmentSettings.newInstance().inStreamingMode()
            tables = flink.table.api.TableEnvironment.create(kind.withConfiguration(configuration).build())
            for statement in _STATEMENTS:
                tables.executeSql(statement.format(last=keys - 1))
        finally:
            gateway.shutdown()

    def leader_url(self) -> str:
        """Return the address of the JobManager that leads. Raises SystemExit after a while."""
        return self._until("a leader of Flink", self._find_leader)

    def leader(self) -> str:
        """Return the name of the JobManager that leads, by its log: the REST API of a standby answers like it."""

        def find() -> str | None:
            logs = {name: (self.directory / name / "out").read_text(errors="replace") for name in self._job_managers()}
            return next((name for name, log in logs.items() if _LEADS in log), None)

        return self._until("a leader of Flink", find)

    def task_manager_of_job(self) -> str:
        """Return the name of the task manager that runs the job's tasks."""

        def find() -> str | None:
            url = self.leader_url()
            for job in _ask(f"{url}/jobs/overview")["jobs"]:
                vertices = _ask(f"{url}/jobs/{job['jid']}")["vertices"]
                found = _ask(f"{url}/jobs/{job['jid']}/vertices/{vertices[0]['id']}/taskmanagers")["taskmanagers"]
                names = set(self.daemons).intersection(each["taskmanager-id"] for each in found)
                if names:
                    return names.pop()
            return None

        return self._until("the task manager of Flink's job", find)

    def wait_for_slots(self, count: int) -> None:
        """Return once so many task managers are registered at the leader."""

        def enough() -> bool:
            return int(_ask(f"{self.leader_url()}/overview")["taskmanagers"]) == count

        self._until(f"{count} task managers of Flink", enough)

    def next_checkpoint(self, since: float) -> float:
        """Return when a checkpoint was first complete after ``since`` (Unix seconds both). Raises SystemExit."""

        def find() -> float | None:
            later = []
            for path in self.checkpoints.glob("*/chk-*/_metadata"):
                try:
                    later.append(path.stat().st_mtime)
                except FileNotFoundError:  # a newer one has replaced it
                    continue
            return min((moment for moment in later if moment > since), default=None)

        return self._until("a checkpoint of Flink", find)

    def _find_leader(self) -> str | None:
        for name in self._job_managers():
            url = f"http://{_ADDRESS}:{self.rest_ports[name]}"
            try:
                settings = {each["key"]: each["value"] for each in _ask(f"{url}/jobmanager/config")}
            except OSError:
                continue
            return f"http://{settings['rest.address']}:{settings['rest.port']}"
        return None

    def _job_managers(self) -> list[str]:
        return sorted(name for name in self.daemons if name.startswith("jobmanager"))

    def _until(self, what: str, find: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            ended = [name for name, process in self.daemons.items() if process.poll() is not None]
            if ended:
                log = (self.directory / ended[0] / "out").read_text(errors="replace")
                raise SystemExit(f"{ended[0]} of Flink has ended:\n{log[-2000:]}")
            try:
                if found := find():
                    return found
            except (OSError, LookupError):  # no leader just now, or one that does not know the job yet
                pass
            time.sleep(_POLL)
        raise SystemExit(f"{what} was not there after {_START_SECONDS:g} s")

    def _start(self, kind: str, main: str, own: Mapping[str, str]) -> str:
        name = f"{kind}-{next(self._numbers)}"
        home = self._configure(name, {**own, "taskmanager.resource-id": name})
        words = [str(self.java), *_JVM, f"-Dlog4j2.configurationFile={home / 'log4j.properties'}"]
        words += ["-cp", self.classes, main, "--configDir", str(home)]
        with (home / "out").open("wb") as output:
            self.daemons[name] = subprocess.Popen(
                words, cwd=home, env=self.environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        return name

    def _configure(self, name: str, own: Mapping[str, str]) -> Path:
        home = self.directory / name
        home.mkdir(exist_ok=True)
        lines = (f"{key}: {value}\n" for key, value in {**self.settings, **own}.items())
        (home / "config.yaml").write_text("".join(lines))
        (home / "log4j.properties").write_text(_LOG)
        return home


@contextmanager
def flink_cluster(directory: Path, environment: Mapping[str, str], task_managers: int) -> Iterator[FlinkCluster]:
    """Two JobManagers and some task managers, with Flink's defaults but for what is set here.

    Checkpoints are made every second, which is as often as a micro-batch of a quick stream. Raises SystemExit if the
    jars were not fetched.
    """
    jar = flink_jar.kept()
    if jar is None:
        raise SystemExit("Flink's jars are not there: make flink")
    directory.mkdir(parents=True)
    servers = plan_ensemble(directory / "zookeeper", 1)
    daemon = start_server(servers[0], servers)
    settings = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": quorum_of(servers),
        "high-availability.storageDir": (directory / "ha").as_uri(),
        "execution.checkpointing.dir": (directory / "checkpoints").as_uri(),
        "execution.checkpointing.interval": "1s",
        "restart-strategy.type": "exponential-delay",  # the default, but a failure counts for 10 s, not for an hour
        "restart-strategy.exponential-delay.reset-backoff-threshold": "10s",
        "parallelism.default": "1",
        "taskmanager.numberOfTaskSlots": "1",
        "jobmanager.memory.process.size": "1024m",
        "jobmanager.rpc.address": _ADDRESS,
        "rest.address": _ADDRESS,
        "rest.bind-address": _ADDRESS,
        "taskmanager.host": _ADDRESS,
        "io.tmp.dirs": str(directory),
    }
    java = Path(find_java(os.environ).executable)
    cluster = FlinkCluster(java, f"{jar.parent}/*", directory, settings, environment)
    try:
        asyncio.run(wait_until_serving(servers[0], daemon))
        for _ in range(2):
            cluster.add_job_manager()
        for _ in range(task_managers):
            cluster.add_task_manager()
        cluster.wait_for_slots(task_managers)
        yield cluster
    finally:
        for process in cluster.daemons.values():
            process.kill()
        daemon.kill()


def _ask(url: str) -> Any:
    """Return a reply of Flink's REST API. Raises OSError."""
    with urllib.request.urlopen(url, timeout=_REPLY_SECONDS) as reply:
        return msgspec.json.decode(reply.read())

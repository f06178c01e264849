"""Two clusters on this machine to compare: Emberkeep's and Spark's own standalone one, up only while measured."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.commands import EMBERKEEP, end, execute
from emberkeep.spark.distribution import spark_home

_START_SECONDS = 60.0


@contextmanager
def emberkeep_cluster(
    directory: Path, nodes: Sequence[str], environment: Mapping[str, str], *options: str, slots: int = 1
) -> Iterator[list[str]]:
    """One task manager with ``slots`` slots per node; yields the options that name the cluster to ``emberkeep run``.

    ``options``: more words for ``cluster up``. Standby processes are off unless they say otherwise: their warm-up would
    take processor time from what is measured."""
    where = ["--state-dir", str(directory)]
    cold = ("-D", "taskmanager.standby.drivers=0", "-D", "taskmanager.standby.executors=0")
    shape = ["--nodes", ",".join(nodes), "--slots", str(slots), "-D", "rest.port=0", *cold, *options]
    try:
        execute([EMBERKEEP, "cluster", "up", *where, *shape], directory, environment)
        yield where
    finally:
        execute([EMBERKEEP, "cluster", "down", *where], directory, environment)


@contextmanager
def standalone_cluster(
    directory: Path, workers: Sequence[str], memory_mb: int, environment: Mapping[str, str], *, cores: int = 1
) -> Iterator[str]:
    """A Spark Master, and one Worker of ``cores`` cores per address, as Spark ships them; yields the master URL."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    spark_class = [str(spark_home({}) / "bin" / "spark-class")]
    deploy = "org.apache.spark.deploy"
    master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    commands = [[*spark_class, f"{deploy}.master.Master", *master]]
    for host in workers:
        options = ["--host", host, "--cores", str(cores), "--memory", f"{memory_mb}m", "--webui-port", "0"]
        commands.append([*spark_class, f"{deploy}.worker.Worker", *options, "--work-dir", str(directory / host), url])
    log = directory / "standalone.log"
    processes: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as output:
        try:
            for command in commands:
                processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        cwd=directory,
                        env={**environment, "SPARK_DAEMON_MEMORY": "256m"},
                        start_new_session=True,
                    )
                )
            _wait_for(log, "Registering worker", len(workers))
            yield url
        finally:
            for process in reversed(processes):
                end(process)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(log: Path, text: str, times: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while log.read_text(errors="replace").count(text) < times:
        if time.monotonic() > deadline:
            raise SystemExit(f"the standalone cluster did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)

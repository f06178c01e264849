"""Several machines, each with a state directory and an address of its own, joined by bundles as documented."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.commands import SMALL, Running, Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-9")]

JOB_MANAGER, TASK_MANAGER = "127.0.0.2", "127.0.0.3"
COUNTS = """
from pyspark.sql import SparkSession

print("counted", SparkSession.builder.getOrCreate().range(1000).repartition(2).count(), flush=True)
"""

Machine = Callable[[str], Shell]


@pytest.fixture
def machine(tmp_path: Path, class_archive: Path) -> Iterator[Machine]:
    """Makes machines. Nothing may be left on them at the end."""
    shells: list[Shell] = []

    def make(name: str) -> Shell:
        shells.append(Shell(tmp_path / name, class_archive))
        return shells[-1]

    try:
        yield make
        for shell in shells:
            shell.traces.check_nothing_left()
    finally:
        for shell in shells:
            shell.traces.kill()


@contextlib.contextmanager
def running(shell: Shell, *words: str) -> Iterator[Running]:
    daemon = shell.start(*words)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait().code == 0, daemon


def free_port() -> int:
    with socket.create_server((JOB_MANAGER, 0)) as listening:
        return int(listening.getsockname()[1])


def configuration(directory: Path) -> tuple[str, str]:
    """The option with one configuration file for all machines."""
    token = directory / "token"
    token.write_text(f"{os.urandom(32).hex()}\n")
    token.chmod(0o600)
    path = directory / "config.yaml"
    path.write_text(
        f"rest.address: {JOB_MANAGER}\n"
        f"rest.bind-address: {JOB_MANAGER}\n"
        f"rest.port: {free_port()}\n"
        f"security.token-file: {token}\n"
        f"high-availability.storageDir: {directory / 'shared'}\n"
    )
    return "--config", str(path)


def task_manager(config: tuple[str, str]) -> tuple[str, ...]:
    settings = {
        "taskmanager.host": TASK_MANAGER,
        "taskmanager.memory.process.size": "4g",
        "taskmanager.cpu.cores": "4",
        "taskmanager.numberOfTaskSlots": "2",
    }
    return ("taskmanager", *config, *(word for key, value in settings.items() for word in ("-D", f"{key}={value}")))


def test_a_machine_joins_a_cluster_with_a_bundle(machine: Machine, tmp_path: Path) -> None:
    first, second, client = machine("first"), machine("second"), machine("client")
    config = configuration(tmp_path)
    first.done("security", "init", "--host", JOB_MANAGER)
    first.done("security", "bundle", "--host", TASK_MANAGER, str(tmp_path / "bundle"))
    second.state.mkdir(parents=True)
    shutil.move(tmp_path / "bundle", second.state / "tls")
    remote = (*config, "-D", f"security.tls.ca={second.state / 'tls' / 'ca.pem'}")

    def has_joined() -> bool:
        return client.run("taskmanagers", *remote).out.count(TASK_MANAGER) > 0

    with running(first, "jobmanager", *config), running(second, *task_manager(config)) as joining:
        until(has_joined, lambda: str(joining))
        client.write("counts.py", COUNTS)
        ended = client.done("run", *remote, *SMALL, "--num-executors", "1", "counts.py")
    assert ended.out.split() == ["counted", "1000"]
    assert not (second.state / "tls" / "ca.key").exists()


def test_a_machine_with_a_ca_of_its_own_does_not_join(machine: Machine, tmp_path: Path) -> None:
    first, stranger = machine("first"), machine("stranger")
    config = configuration(tmp_path)
    first.done("security", "init", "--host", JOB_MANAGER)
    stranger.done("security", "init", "--host", TASK_MANAGER)
    log = stranger.state / "taskmanagers" / f"tm-{TASK_MANAGER}" / "logs" / "taskmanager.log"

    def says_why() -> bool:
        return log.exists() and "has no valid certificate of the cluster" in log.read_text()

    with running(first, "jobmanager", *config), running(stranger, *task_manager(config)) as refused:
        until(says_why, lambda: f"{refused}\n{log.read_text()}")
        assert TASK_MANAGER not in first.done("taskmanagers", *config).out

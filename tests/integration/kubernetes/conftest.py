"""A real Kubernetes, and a cluster whose task managers are its pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.kubernetes.real_kubernetes import NAMESPACE, RealKubernetes, real_kubernetes
from tests.integration.slurm.real_slurm import ADDRESS


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "user", tmp_path / "no-class-archives")


@pytest.fixture
def kubernetes(tmp_path: Path, shell: Shell) -> Iterator[RealKubernetes]:
    with real_kubernetes(tmp_path / "kubernetes", shell.environment) as kubernetes:
        yield kubernetes


@pytest.fixture
def settings() -> dict[str, str]:
    """Of the cluster, besides those that all have here. A test may override this."""
    return {}


@pytest.fixture
def cluster(
    shell: Shell, kubernetes: RealKubernetes, settings: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """``up`` gets the words that a test gives as the parameter of this fixture, too."""
    cluster = Cluster(shell)
    texts = {
        "resourcemanager.type": "kubernetes",
        "resourcemanager.taskmanager-timeout": "3s",
        "kubernetes.namespace": NAMESPACE,
        "kubernetes.container.image.ref": "emberkeep:test",
        "kubernetes.config.file": str(kubernetes.config_file),
        "process.taskmanager.working-dir": str(shell.directory / "place"),
        "taskmanager.driver-places": "1",
        "taskmanager.cpu.cores": "1",
        "rest.address": ADDRESS,
        "rest.bind-address": ADDRESS,
        "rest.port": "18081",
        "security.token-file": str(shell.state / "token"),
        **settings,
    }
    words = [word for key, value in texts.items() for word in ("-D", f"{key}={value}")]
    try:
        cluster.up("--slots", "1", "--memory", "3g", *QUICK, *getattr(request, "param", ()), *words)
        yield cluster
    finally:
        try:
            kubernetes.delete_pods()
        finally:
            cluster.close()

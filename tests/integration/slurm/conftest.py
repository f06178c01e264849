"""A real Slurm, and a cluster whose task managers are its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.slurm.real_slurm import ADDRESS, RealSlurm, own_network

ON_DEMAND = (
    *("-D", "resourcemanager.type=slurm", "-D", f"rest.address={ADDRESS}", "-D", f"rest.bind-address={ADDRESS}"),
    *("-D", "resourcemanager.slurm.query-interval=1s", "-D", "resourcemanager.taskmanager-timeout=3s"),
    *("-D", "taskmanager.driver-places=1", "-D", "taskmanager.cpu.cores=1"),
    *("-D", "rest.port=18081"),  # task managers find the next JobManager there
)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[RealSlurm]:
    with own_network():
        slurm = RealSlurm(tmp_path / "slurm")
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.close()


@pytest.fixture
def shell(tmp_path: Path, slurm: RealSlurm) -> Shell:
    # Slurm's daemons are not what a cluster must not leave behind, so their files are elsewhere.
    shell = Shell(tmp_path / "user", tmp_path / "no-class-archives")
    shell.environment["SLURM_CONF"] = str(slurm.configuration)
    return shell


@pytest.fixture
def cluster(shell: Shell, slurm: RealSlurm, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With the settings that a test gives as the parameter of this fixture."""
    cluster = Cluster(shell)
    more = getattr(request, "param", ())
    try:
        token = shell.state / "token"
        cluster.up("--slots", "1", "--memory", "3g", *QUICK, *ON_DEMAND, *more, "-D", f"security.token-file={token}")
        yield cluster
    finally:
        try:
            until(lambda: not cancelled(slurm), slurm.story, seconds=60)
        finally:
            cluster.close()


def cancelled(slurm: RealSlurm) -> list[int]:
    """Cancel all Slurm jobs, and return them. A JobManager whose job still runs requests others in their place."""
    numbers = [number for number, _, _ in slurm.jobs().values()]
    for number in numbers:
        slurm.run("scancel", str(number))
    return numbers

"""A cluster of the release before, upgraded process by process while a stream runs, and one step of the way back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emberkeep.base.configuration.options.task_managers import JOB_ENVIRONMENT
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.cluster_file import DaemonRecord
from tests.integration.clusters import QUICK, Cluster, environment_of
from tests.integration.commands import NO_STANDBYS, Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-14")]

RELEASE_BEFORE = "ff57f34"  # its commit; a new release changes this line
REPOSITORY = Path(__file__).parents[3]
# Nobody is to be taken for lost here because a machine under load is slow. Yet a driver that no leader answers is lost
# before the test is over.
UNHURRIED = ("-D", "heartbeat.timeout=15s", "-D", "job.driver.lease-timeout=25s")
INHERITED = environment_variable(JOB_ENVIRONMENT.key)
SHAPE = ("--ha", "--task-managers", "2", "--slots", "2", "--memory", "4g")


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the packages of that release's wheel."""
    directory = tmp_path_factory.mktemp("release")
    archived = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", RELEASE_BEFORE], capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip(f"this checkout does not hold commit {RELEASE_BEFORE}: {archived.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(directory / "source", filter="data")
    words = ["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", *words, "--wheel-dir", str(directory), str(directory / "source")]
    subprocess.run(command, check=True, cwd=directory)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as packages:
        packages.extractall(directory / "packages")
    return directory / "packages"


class Upgrade:
    """A cluster whose processes are replaced one after the other, while a stream runs."""

    def __init__(self, cluster: Cluster, release_before: Path) -> None:
        self.cluster = cluster
        self.stream = Stream(cluster.shell.directory / "stream")
        self._before = str(release_before)
        self.job_id = JobId("")
        self.driver = 0
        self.executors: set[int] = set()

    def use_release_before(self) -> None:
        """Commands, and what they start, are of that release from now on. It refuses keys that it does not know."""
        self.cluster.shell.environment["PYTHONPATH"] = self._before
        for name in (INHERITED, *NO_STANDBYS):
            self.cluster.shell.environment.pop(name, None)

    def use_present_release(self) -> None:
        self.cluster.shell.environment.pop("PYTHONPATH", None)
        self.cluster.shell.environment.update({**self.cluster.shell.traces.environment(), **NO_STANDBYS})

    def is_of_release_before(self, daemon: DaemonRecord) -> bool:
        return f"PYTHONPATH={self._before}" in environment_of(daemon.identity.pid)

    def begin(self) -> None:
        self.use_release_before()
        self.cluster.up(*SHAPE, *QUICK, *UNHURRIED)
        assert all(self.is_of_release_before(daemon) for daemon in self._daemons())
        self.cluster.shell.write("stream.py", SCRIPT)
        self.job_id = self.cluster.submit("stream.py", arguments=(str(self.stream.place),))
        self.driver = self.cluster.wait_for_driver(self.job_id)
        self.executors = self._executors()
        self.wait_for_batches()

    def replace(self, name: str) -> None:
        """End a daemon by SIGTERM, and start what is missing."""
        daemon = self.cluster.daemon(name)
        os.kill(daemon.identity.pid, signal.SIGTERM)
        until(lambda: not daemon.is_running, f"{name} ends")
        self.wait_for_batches(1)
        assert "starting" in self.cluster.up().err

    def goes_on(self) -> None:
        """With the same processes, and the leader hears them, of whatever release they are."""
        self.wait_for_batches()
        managers = {daemon.name for daemon in self.cluster.record.task_managers}
        until(lambda: managers == self._heard(), lambda: f"{self._heard()} of {managers} are heard")
        assert self.cluster.wait_for_driver(self.job_id) == self.driver
        assert self._executors() == self.executors, self.cluster.story(self.job_id)
        assert self.cluster.job(self.job_id).emberkeep.attempt == 1

    def wait_for_batches(self, more: int = 3) -> None:
        wanted = self.stream.batches() + more
        until(lambda: self.stream.batches() >= wanted, lambda: self.cluster.story(self.job_id))

    def leader(self) -> DaemonRecord | None:
        try:
            overview = self.cluster.ask(lambda client: client.overview())
        except EmberkeepError:
            return None
        record = self.cluster.record
        by_address = {urlsplit(url).netloc: each for url, each in zip(record.urls, record.job_managers, strict=True)}
        return by_address[overview.emberkeep.job_manager]

    def _heard(self) -> set[str]:
        return {str(manager.id) for manager in self.cluster.ask(lambda client: client.task_managers())}

    def _executors(self) -> set[int]:
        return {executor.pid for executor in self.cluster.wait_for_executors(self.job_id)}

    def _daemons(self) -> tuple[DaemonRecord, ...]:
        return (*self.cluster.record.job_managers, *self.cluster.record.task_managers)


@pytest.fixture
def upgrade(tmp_path: Path, class_archive: Path, release_before: Path) -> Iterator[Upgrade]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        yield Upgrade(cluster, release_before)
    finally:
        cluster.shell.environment.pop("PYTHONPATH", None)
        cluster.close()


def test_a_stream_does_not_notice_the_upgrade_nor_the_step_back(upgrade: Upgrade) -> None:
    cluster = upgrade.cluster
    upgrade.begin()
    leading = upgrade.leader()
    assert leading is not None

    # As docs/upgrades.md tells it: the standbys first, the leader last, then the task managers.
    upgrade.use_present_release()
    names = sorted((daemon.name for daemon in cluster.record.job_managers), key=lambda name: name == leading.name)
    for name in names:
        upgrade.replace(name)
        assert not upgrade.is_of_release_before(cluster.daemon(name))
        upgrade.goes_on()
    for daemon in cluster.record.task_managers:
        upgrade.replace(daemon.name)
        assert not upgrade.is_of_release_before(cluster.daemon(daemon.name))
        upgrade.goes_on()

    # One JobManager goes back, and has to lead alone.
    upgrade.use_release_before()
    back = names[0]
    upgrade.replace(back)
    assert upgrade.is_of_release_before(cluster.daemon(back))
    for name in names[1:]:
        daemon = cluster.daemon(name)
        os.kill(daemon.identity.pid, signal.SIGTERM)
        until(lambda: not daemon.is_running, f"{name} ends")  # noqa: B023
    until(lambda: (found := upgrade.leader()) is not None and found.name == back, f"{back} leads")
    upgrade.goes_on()

    upgrade.use_present_release()
    upgrade.stream.finish()
    assert cluster.wait_for_end(upgrade.job_id).emberkeep.attempt == 1
    assert upgrade.stream.drivers() == [upgrade.driver]
    upgrade.stream.check()
    cluster.up()

"""Services of several machines are upgraded one after the other, as docs/production tells it, while a stream runs."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.commands import SMALL
from tests.integration.conditions import until
from tests.integration.services.machine import why_not
from tests.integration.services.service_cluster import ServiceCluster, use_release, used_release
from tests.integration.services.services import JOB_MANAGER, TASK_MANAGER, Services
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-14")]

BEFORE, AFTER = "0.8.0", "0.9.0"
WHERE = 'import sys; print("driver of", sys.prefix, flush=True)'
_reason = functools.cache(why_not)


class Upgrade:
    """A cluster whose services are upgraded, and a stream that runs on it."""

    def __init__(self, cluster: ServiceCluster) -> None:
        self.cluster = cluster
        self.stream = Stream(cluster.shared / "stream")
        for path in (cluster.shared / "stream.py", self.stream.place):
            path.touch()
            shutil.chown(path, cluster.shared.stat().st_uid)
        (cluster.shared / "stream.py").write_text(SCRIPT)
        words = ("submit", "-q", *SMALL, "--num-executors", "2", str(cluster.shared / "stream.py"))
        self.job_id = cluster.done(*words, str(self.stream.place)).strip()
        self._processes = _processes(cluster.wait_for(self.job_id, _is_complete))
        self.wait_for_batches()

    def wait_for_batches(self, more: int = 3) -> None:
        wanted = self.stream.batches() + more
        until(lambda: self.stream.batches() >= wanted, lambda: f"{self.job()}\n{self.cluster.story()}")

    def job(self) -> JobDetailsInfo:
        return self.cluster.job(self.job_id)

    def replace(self, services: Services, unit: str) -> None:
        """Install the other release under a running service, as the page says, and restart it after a batch."""
        before = services.main_pid(unit)
        use_release(services.machine, AFTER)
        services.install()
        self.wait_for_batches(1)
        assert services.main_pid(unit) == before
        services.machine.done("systemctl", "restart", unit)
        until(lambda: services.main_pid(unit) not in (0, before), services.story)
        assert used_release(services.machine, services.main_pid(unit)) == AFTER

    def goes_on(self) -> None:
        """With the same processes, and the leader hears them, of whatever release they are."""
        self.wait_for_batches()
        until(lambda: self.cluster.registered() == len(self.cluster.services), self.cluster.story)
        job = self.cluster.wait_for(self.job_id, _is_complete)
        assert job.emberkeep.attempt == 1, self.cluster.story()
        assert _processes(job) == self._processes, self.cluster.story()


def _is_complete(job: JobDetailsInfo) -> bool:
    own = job.emberkeep
    registered = [executor for executor in own.executors if executor.registered and not executor.away]
    return job.state is JobStatus.RUNNING and own.driver is not None and len(registered) == 2


def _processes(job: JobDetailsInfo) -> set[tuple[TaskManagerId, int]]:
    """Where the driver and the executors of a job run."""
    driver = job.emberkeep.driver
    assert driver is not None
    executors = {(executor.taskmanager_id, executor.pid) for executor in job.emberkeep.executors}
    return executors | {(driver.taskmanager_id, driver.pid)}


def uses_release_before(services: Services) -> bool:
    """True while a process of a machine does."""
    return services.machine.run("pgrep", "-f", f"/mnt/releases/{BEFORE}/").code == 0


@pytest.fixture
def upgrade(tmp_path: Path) -> Iterator[Upgrade]:
    if reason := _reason():
        pytest.skip(reason)
    with contextlib.closing(ServiceCluster(tmp_path, BEFORE)) as cluster:
        cluster.start()
        yield Upgrade(cluster)


def test_a_stream_does_not_notice_that_the_services_of_each_machine_are_upgraded(upgrade: Upgrade) -> None:
    cluster = upgrade.cluster
    leading = cluster.leader()
    last = sorted(cluster.services, key=lambda each: each is leading)
    for services in last:
        cluster.add_release(services.machine, AFTER)
        upgrade.replace(services, JOB_MANAGER)
        upgrade.goes_on()
    assert cluster.leader() is last[0]
    for services in cluster.services:
        upgrade.replace(services, TASK_MANAGER)
        upgrade.goes_on()

    overview = until(cluster.overview, cluster.story)
    assert overview.emberkeep.version == AFTER
    assert any(uses_release_before(services) for services in cluster.services), "of the driver"
    upgrade.stream.finish()
    job = cluster.wait_for(upgrade.job_id, lambda job: job.state.is_globally_terminal)
    assert (job.state, job.emberkeep.attempt) == (JobStatus.FINISHED, 1)
    upgrade.stream.check()
    assert len(upgrade.stream.drivers()) == 1

    # Nothing needs the release before any more.
    (cluster.shared / "where.py").write_text(WHERE)
    for services in cluster.services:
        until(lambda services=services: not uses_release_before(services), services.story)  # type: ignore[misc]
        services.machine.done("rm", "-r", f"/mnt/releases/{BEFORE}")
    job_id = cluster.done("submit", "-q", str(cluster.shared / "where.py")).strip()
    cluster.wait_for(job_id, lambda job: job.state is JobStatus.FINISHED)
    assert f"driver of /mnt/releases/{AFTER}" in cluster.done("logs", job_id)

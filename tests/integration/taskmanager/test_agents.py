"""Task managers' processes killed, stopped and started again while drivers and executors of theirs live."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.processes.process_identity import identify
from emberkeep.client.clusters.leftovers import processes_below
from emberkeep.daemons.records.agent_files import SlotsFile
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.protocol.rest_task_managers import TaskManagerExtension
from emberkeep.slots.table.record import SlotRecord
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream
from tests.support.live_files import files_below

pytestmark = pytest.mark.integration

NODES = ("tm-127.0.0.2", "tm-127.0.0.3")
MIB = 2**20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("agents"), class_archive.parent))
    try:
        cluster.up("--nodes", "127.0.0.2,127.0.0.3", "--slots", "1", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def everything_is_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    used: Cluster = request.getfixturevalue("impatient" if "impatient" in request.fixturenames else "cluster")
    yield
    used.cancel_all()
    used.wait_until_idle()


def processes(job: JobDetailsInfo) -> tuple[int, dict[str, int]]:
    """Pids of the driver and of the executors."""
    assert job.emberkeep.driver is not None
    return job.emberkeep.driver.pid, {executor.id: executor.pid for executor in job.emberkeep.executors}


def wait_for_batches(cluster: Cluster, job_id: str, stream: Stream, more: int = 3) -> None:
    wanted = stream.batches() + more
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))  # type: ignore[arg-type]


def test_a_node_reports_what_its_machine_has_and_uses(cluster: Cluster) -> None:
    def node() -> TaskManagerExtension:
        return {str(each.id): each.emberkeep for each in cluster.ask(lambda client: client.task_managers())}[NODES[0]]

    def measures_now() -> bool:
        """Others use the machine as well, so two measurements differ a little."""
        told, memory, disk = node(), psutil.virtual_memory(), shutil.disk_usage(cluster.shell.directory)
        available = memory.total - told.memory_used_mb * MIB
        return (
            0.5 * memory.available < available < 2 * memory.available
            and 0.5 * disk.free < told.disk_free_mb * MIB < 2 * disk.free
            and 0 < told.cpu_percent <= 100
        )

    until(measures_now, lambda: f"{node()}, {psutil.virtual_memory()}")
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(cluster.shell.directory)
    assert (node().memory_total_mb, node().disk_total_mb) == (memory.total // MIB, disk.total // MIB)


@pytest.mark.req("LOC-6", "LOC-11")
@pytest.mark.long
def test_drivers_and_executors_do_not_notice_that_their_agents_are_killed_or_stopped_and_come_back(
    cluster: Cluster,
) -> None:
    stream = Stream(cluster.shell.directory / "adopted")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),), executors=2)
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(cluster, job_id, stream)
    driver, executors = processes(cluster.job(job_id))

    for end in (signal.SIGKILL, signal.SIGTERM):
        before = [cluster.daemon(name) for name in NODES]
        for daemon in before:
            os.kill(daemon.identity.pid, end)
        until(lambda: not any(daemon.is_running for daemon in before), "the agents end")  # noqa: B023
        wait_for_batches(cluster, job_id, stream)
        cluster.up()
        wait_for_batches(cluster, job_id, stream)
        job = cluster.wait_for(
            job_id,
            lambda job: sum(executor.registered for executor in job.emberkeep.executors) == 2,
            "the executors are known again",
        )
        assert processes(job) == (driver, executors), cluster.story(job_id)
        assert job.emberkeep.attempt == 1

    victim = min(executors)
    kill_process(executors[victim])
    job = cluster.wait_for(
        job_id,
        lambda job: (
            victim not in {executor.id for executor in job.emberkeep.executors}
            and sum(executor.registered for executor in job.emberkeep.executors) == 2
        ),
        "an adopted executor that ends is replaced",
    )
    wait_for_batches(cluster, job_id, stream)
    assert processes(cluster.job(job_id))[0] == driver
    stream.finish()
    job = cluster.wait_for_end(job_id)
    assert stream.drivers() == [driver]
    assert job.emberkeep.attempt == 1
    stream.check()


SLEEPS = """
import time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("count", spark.range(10).count(), flush=True)
time.sleep(3600)
"""


@pytest.mark.req("LOC-11")
@pytest.mark.long
def test_an_adopted_driver_can_be_cancelled_and_its_directory_goes(cluster: Cluster) -> None:
    cluster.shell.write("sleeps.py", SLEEPS)
    job_id = cluster.submit("sleeps.py")
    cluster.wait_for_executors(job_id)
    until(lambda: "count 10" in cluster.output(job_id), lambda: cluster.story(job_id))
    place = cluster.job(job_id).emberkeep.driver
    assert place is not None
    cluster.kill(place.taskmanager_id)
    cluster.up()
    assert cluster.wait_for_driver(job_id) == place.pid
    cluster.cancel(job_id)
    job = cluster.wait_for_end(job_id, JobStatus.CANCELED)
    assert job.emberkeep.attempt == 1
    assert identify(place.pid) is None


@pytest.mark.req("LOC-1", "LOC-3", "LOC-5", "LOC-6")
@pytest.mark.long
def test_a_node_that_is_killed_and_started_again_gets_its_slot_back_with_another_executor(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "node")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),), executors=2)
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(cluster, job_id, stream)
    job = cluster.job(job_id)
    assert job.emberkeep.driver is not None
    (other,) = set(NODES) - {job.emberkeep.driver.taskmanager_id}
    (before,) = recorded_slots(cluster, other)
    (kept,) = (executor for executor in job.emberkeep.executors if executor.taskmanager_id != other)

    cluster.lose_node(other)
    cluster.up()
    job = cluster.wait_for(
        job_id,
        lambda job: any(
            e.taskmanager_id == other and e.registered and e.id != before.executor_id for e in job.emberkeep.executors
        ),
        "an executor is on that node again",
    )
    wait_for_batches(cluster, job_id, stream)
    (after,) = recorded_slots(cluster, other)
    assert after.allocation == before.allocation, cluster.story(job_id)
    assert before.executor_id in after.former
    driver, executors = processes(cluster.job(job_id))
    assert driver == processes(job)[0]
    assert executors[kept.id] == kept.pid

    daemon = cluster.daemon(other)
    cluster.shell.done("taskmanager", "stop", other)  # for good: its work goes, and what it kept
    until(lambda: not daemon.is_running, "the task manager ends")
    place = WorkingDirectory(Path(daemon.directory))
    assert recorded_slots(cluster, other) == ()
    assert processes_below([place.root]) == []
    assert list(place.processes.iterdir()) == []
    assert not files_below(place.blobs, name="*.blob")
    wait_for_batches(cluster, job_id, stream)
    cluster.up()

    # The driver's task manager is to end, its work first: the driver goes between two batches, and nothing has failed.
    home = cluster.job(job_id).emberkeep.driver
    assert home is not None
    daemon = cluster.daemon(home.taskmanager_id)
    cluster.shell.done("taskmanager", "stop", home.taskmanager_id, "--drain-first", "1h")
    until(lambda: not daemon.is_running, "the task manager ends")
    cluster.wait_for_driver(job_id, attempt=2)
    wait_for_batches(cluster, job_id, stream)
    cluster.up()
    stream.finish()
    job = cluster.wait_for_end(job_id)
    causes = [(attempt.failure_kind, attempt.root_cause) for attempt in job.emberkeep.attempts]
    moved = f"moved from node {home.taskmanager_id.removeprefix('tm-')}"
    assert causes == [(FailureKind.MOVED, moved), (None, "")], cluster.story(job_id)
    stream.check()


def recorded_slots(cluster: Cluster, name: str) -> tuple[SlotRecord, ...]:
    """What a task manager keeps for its next life."""
    return SlotsFile(WorkingDirectory(Path(cluster.daemon(name).directory)).slots_record).load().table.slots


@pytest.fixture
def impatient(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    """A cluster whose drivers soon miss their task manager."""
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        orphans = ("-D", "taskmanager.orphan-timeout=3s")
        cluster.up("--nodes", "127.0.0.2,127.0.0.3", "--slots", "1", "--memory", "4g", *QUICK, *orphans)
        yield cluster
    finally:
        cluster.close()


@pytest.mark.req("LOC-11")
@pytest.mark.long
def test_nothing_is_left_of_a_task_manager_that_does_not_come_back(impatient: Cluster) -> None:
    cluster = impatient
    stream = Stream(cluster.shell.directory / "orphaned")
    cluster.shell.write("stream.py", SCRIPT)
    restarts = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")
    job_id = cluster.submit("stream.py", *restarts, arguments=(str(stream.place),), executors=2)
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(cluster, job_id, stream)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    (other,) = set(NODES) - {driver.taskmanager_id}
    directory = Path(cluster.daemon(driver.taskmanager_id).directory)
    cluster.kill(driver.taskmanager_id)
    cluster.wait_for_driver(job_id, attempt=2)
    until(lambda: not processes_below([directory]), lambda: f"{processes_below([directory])} end")
    job = cluster.job(job_id)
    assert job.emberkeep.driver is not None
    assert job.emberkeep.driver.taskmanager_id == other
    assert [attempt.failure_kind for attempt in job.emberkeep.attempts][:1] == [FailureKind.LOST]
    wait_for_batches(cluster, job_id, stream)
    cluster.up()  # what it finds recorded is over
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()

"""What a cluster on several hosts survives besides the loss of a host: no row of a stream is lost or comes twice."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from emberkeep.chronicle.occurrence import What
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.conditions import until
from tests.integration.hosts.clocks import check_clocks_of_jobs
from tests.integration.hosts.disks import LocalDisk
from tests.integration.hosts.flights import DELAYS, Flights, Pipeline
from tests.integration.hosts.host import SHARED
from tests.integration.hosts.network import Network
from tests.integration.hosts.requirements import fake_clock
from tests.integration.hosts.sessions import ROTATIONS
from tests.integration.hosts.site import UID, HostedCluster, own_files

pytestmark = [pytest.mark.integration, pytest.mark.long]

STILL_SECONDS = 15.0  # longer than a micro-batch, a lease and a ZooKeeper session
EACH_PIPELINE = pytest.mark.parametrize("pipeline", [DELAYS, ROTATIONS], ids=["delays", "rotations"])
WORK = "/mnt/local/work"  # of a task manager with a small disk
SMALL_DISK_MB = 160
EXECUTORS, TASKS, TASK_MB, KEYS = 3, 40, 16, 8  # a third of 640 MB is more than the small disk has

# Arguments: a directory for the result, executors, map tasks, MB that each of them writes, keys. What is shuffled
# cannot be compressed. Waits until all executors are there, so that each gets its part.
SHUFFLE = """
import hashlib, sys, time

from pyspark.sql import SparkSession

place, (executors, tasks, size, keys) = sys.argv[1], map(int, sys.argv[2:])
spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
while context._jsc.sc().getExecutorMemoryStatus().size() <= executors:
    time.sleep(0.1)

def rows(numbers):
    for number in numbers:
        for part in range(size * 10):
            seed = hashlib.sha512(f"{number}/{part}".encode()).digest()
            yield number % keys, (number, b"".join(hashlib.sha512(seed + b"%d" % n).digest() for n in range(1563)))

def summary(of_key):
    key, values = of_key
    numbers, length, count = set(), 0, 0
    for number, data in values:
        numbers.add(number)
        length += len(data)
        count += 1
    return key, sorted(numbers), count, length

shuffled = context.parallelize(range(tasks), tasks).mapPartitions(rows).groupByKey(keys).map(summary)
shuffled.toDF("key int, numbers array<int>, count int, length long").coalesce(1).write.json(place)
print("all rows are written", flush=True)
"""


@pytest.mark.req("NET-3")
@EACH_PIPELINE
@pytest.mark.skipif(fake_clock() is None, reason="libfaketime is not installed: `make host-tools`")
def test_the_clocks_of_hosts_differ_by_hours(network: Network, pipeline: Pipeline) -> None:
    cluster = HostedCluster(network, job_managers=2)
    cluster.prepare()
    cluster.job_managers[1].shift_clock(-1800)
    ahead = dict(zip((host.name for host in cluster.task_managers), (7200, -3600, 0), strict=True))
    for host in cluster.task_managers:
        host.shift_clock(ahead[host.name])
    # Drivers are on hosts whose clocks are wrong, the first and the second one of the flights by three hours.
    cluster.start({cluster.task_managers[2].name: {"taskmanager.driver-places": "0"}})
    check_clocks_of_jobs(cluster, ahead)
    flights = Flights(cluster, pipeline=pipeline)
    flights.go_on("at first")
    network.kill(cluster.leader())
    flights.go_on("after the leader's host was lost")
    job = cluster.running(flights.job_id)
    assert job.emberkeep.attempt == 1
    network.kill(cluster.driver_host(job))
    cluster.wait_for_attempt(flights.job_id, 2)
    flights.end()


@pytest.mark.req("NET-3")
@EACH_PIPELINE
def test_a_disk_is_full_and_the_leader_cannot_write_to_the_shared_storage(network: Network, pipeline: Pipeline) -> None:
    cluster = HostedCluster(network, job_managers=2)
    cluster.prepare()
    for host in cluster.task_managers:
        host.mount_small_disk(WORK, megabytes=600, uid=UID)
    cluster.start({host.name: {"process.taskmanager.working-dir": WORK} for host in cluster.task_managers})
    # What a full disk does to a script looks like a failure of the script.
    flights = Flights(cluster, "-D", "restart-strategy.restart-on=any", pipeline=pipeline)
    flights.go_on("at first")
    full = cluster.driver_host(cluster.running(flights.job_id))
    full.fill_disk(WORK)
    flights.go_on("while the disk of the driver's host is full", batches=5)
    until(lambda: _noted(cluster, What.DISK_FULL), cluster.story)
    full.free_disk(WORK)
    until(lambda: cluster.registered() == len(cluster.task_managers), cluster.story)
    until(lambda: _noted(cluster, What.DISK_HAS_ROOM), cluster.story)

    leader = cluster.leader()
    leader.forbid_shared_writes()
    flights.go_on("while the leader cannot write", batches=5)
    refused = cluster.client.run(
        "emberkeep", "submit", "--url", cluster.url(), *cluster.credentials, "-q", "pipeline.py"
    )
    assert refused.code != 0
    assert "Read-only file system" in refused.err, refused
    leader.permit_shared_writes()
    flights.end()


def _noted(cluster: HostedCluster, what: What) -> bool:
    words = ("emberkeep", "events", "--url", cluster.url(), *cluster.credentials, "-o", "json")
    return f'"{what}"' in cluster.client.run(*words).out


@pytest.mark.req("NET-3")
@EACH_PIPELINE
def test_the_shared_storage_answers_nothing_for_a_while(network_with_disk: Network, pipeline: Pipeline) -> None:
    disk = network_with_disk.disk
    assert disk is not None
    cluster = HostedCluster(network_with_disk, job_managers=2)
    cluster.prepare()
    cluster.start()
    flights = Flights(cluster, pipeline=pipeline)
    flights.go_on("at first")
    with disk.frozen():
        flights.stand_still(STILL_SECONDS)
    flights.go_on("after the storage answers again")
    flights.end()


@pytest.mark.req("NET-3")
@EACH_PIPELINE
@pytest.mark.skipif(shutil.which("bindfs") is None, reason="bindfs is not installed: `make host-tools`")
def test_the_mount_of_the_shared_storage_hangs(network: Network, pipeline: Pipeline) -> None:
    """Reads and writes hang: on the driver's host, then on the leader's, then on all, as if the file server hung."""
    cluster = HostedCluster(network, job_managers=2)
    hosts = [*cluster.job_managers, *cluster.task_managers]
    cluster.prepare()
    for host in hosts:
        host.serve_shared()
    cluster.start()
    flights = Flights(cluster, pipeline=pipeline)
    flights.go_on("at first")
    with cluster.driver_host(cluster.running(flights.job_id)).hung_shared():
        flights.stand_still(STILL_SECONDS)
    flights.go_on("after the mount of the driver's host answers again")
    with cluster.leader().hung_shared():
        flights.go_on("while the mount of the leader's host hangs", batches=3)
    with contextlib.ExitStack() as hung:
        for host in hosts:
            hung.enter_context(host.hung_shared())
        flights.stand_still(STILL_SECONDS)
    flights.go_on("after all mounts answer again")
    flights.end()


@pytest.mark.req("HA-5", "NET-3")
@EACH_PIPELINE
def test_the_hosts_of_the_leader_and_of_the_driver_are_lost_at_once(network: Network, pipeline: Pipeline) -> None:
    """With the leader, a server of ZooKeeper is lost as well. The driver's host comes back and gets work again."""
    cluster = HostedCluster(network, zookeepers=0)
    cluster.prepare()
    cluster.start()
    flights = Flights(cluster, pipeline=pipeline)
    flights.go_on("at first")
    leader, host = cluster.leader(), cluster.driver_host(cluster.running(flights.job_id))
    network.kill(host)
    network.kill(leader)
    cluster.wait_for_attempt(flights.job_id, 2)
    flights.go_on("after both hosts were lost")
    cluster.boot(host)
    cluster.start_task_manager(host, {})
    until(lambda: cluster.registered() == len(cluster.task_managers), cluster.story)
    flights.end()


@pytest.mark.req("HA-9", "NET-3")
@EACH_PIPELINE
def test_hosts_of_zookeeper_are_lost(network: Network, pipeline: Pipeline) -> None:
    """First that of a follower, which comes back, then that of the ensemble's leader."""
    cluster = HostedCluster(network, job_managers=2, task_managers=2, zookeepers=3)
    cluster.prepare()
    cluster.start()
    flights = Flights(cluster, pipeline=pipeline)
    flights.go_on("at first")
    follower = cluster.zookeeper.serving("follower")
    network.kill(follower)
    flights.go_on("after a follower of the ensemble was lost", batches=5)
    network.start(follower)
    cluster.start_zookeeper(follower)
    cluster.zookeeper.wait_for(follower)
    network.kill(cluster.zookeeper.serving("leader"))
    flights.go_on("after the leader of the ensemble was lost", batches=8)
    cluster.zookeeper.serving("leader")
    flights.end()
    job = cluster.job(flights.job_id)
    assert job is not None
    assert job.emberkeep.attempt == 1, "no attempt was lost"


@pytest.mark.req("NET-3")
@EACH_PIPELINE
def test_the_disk_of_the_drivers_host_fails(network_with_disk: Network, pipeline: Pipeline) -> None:
    """As ext4 does after an error, it can only be read from then on."""
    network = network_with_disk
    cluster = HostedCluster(network, job_managers=2)
    cluster.prepare()
    disks = {host: LocalDisk(network.directory / f"{host.name}.img", host, WORK, UID) for host in cluster.task_managers}
    cluster.start({host.name: {"process.taskmanager.working-dir": WORK} for host in cluster.task_managers})
    # What a disk that cannot be written does to a script looks like a failure of the script.
    flights = Flights(cluster, "-D", "restart-strategy.restart-on=any", pipeline=pipeline)
    flights.go_on("at first")
    host = cluster.driver_host(cluster.running(flights.job_id))
    disks[host].fail()
    cluster.wait_for_attempt(flights.job_id, 2)
    assert cluster.driver_host(cluster.running(flights.job_id)) is not host
    until(lambda: _noted(cluster, What.DISK_FULL), cluster.story)
    flights.go_on("on another host")
    flights.end()


@pytest.mark.req("NET-3")
def test_a_shuffle_goes_on_elsewhere_when_the_disk_of_an_executors_host_is_full(network: Network) -> None:
    cluster = HostedCluster(network, job_managers=1, task_managers=EXECUTORS)
    cluster.prepare()
    small = cluster.task_managers[0]
    small.mount_small_disk(WORK, megabytes=SMALL_DISK_MB, uid=UID)
    cluster.start({small.name: {"process.taskmanager.working-dir": WORK, "taskmanager.driver-places": "0"}})
    place = network.shared / "shuffle"
    place.mkdir()
    own_files(place)
    cluster.client.write(cluster.client.home() / "shuffle.py", SHUFFLE)
    numbers = tuple(map(str, (EXECUTORS, TASKS, TASK_MB, KEYS)))
    job_id = cluster.submit("shuffle.py", arguments=(str(SHARED / "shuffle" / "out"), *numbers), executors=EXECUTORS)

    found = cluster.wait_for(job_id, _on_full_disks, "a disk is full")
    assert _on_full_disks(found) == [f"tm-{small.name}"]
    assert "takes no new task: its disk is full" in cluster.command("info", job_id)
    job = cluster.wait_for(job_id, lambda job: job.state.is_globally_terminal, "the job ends")
    assert (job.state, job.emberkeep.attempt) == (JobStatus.FINISHED, 1), cluster.story()
    assert _rows(place / "out") == _answer()
    assert "no space is left on its disk" in cluster.command("info", job_id)


def _on_full_disks(job: JobDetailsInfo) -> list[str]:
    return [executor.taskmanager_id for executor in job.emberkeep.executors if executor.lacks_space]


def _rows(place: Path) -> list[dict[str, object]]:
    lines = [line for part in place.glob("part-*.json") for line in part.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda row: row["key"])


def _answer() -> list[dict[str, object]]:
    each = TASK_MB * 10
    numbers = {key: list(range(key, TASKS, KEYS)) for key in range(KEYS)}
    return [
        {"key": key, "numbers": of, "count": len(of) * each, "length": len(of) * each * 1563 * 64}
        for key, of in numbers.items()
    ]

"""Nodes blocked, evacuated and given back by the command under real jobs, the JobManager killed in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.protocol.rest_jobs import ExecutorInfo, JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.standbys.warm_cluster import starts, warm_cluster
from tests.integration.streams import SCRIPT, Stream

pytestmark = pytest.mark.integration

NODES = ("127.0.0.2", "127.0.0.3")


# A driver that cannot move between two batches is restarted after this time: not before that was tried for long.
PATIENT = ("-D", "blocklist.evacuation.timeout=100s")


@pytest.fixture(params=[ProcessStart.COLD, ProcessStart.HOT])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    """How the processes of jobs start is the parameter."""
    if request.param is ProcessStart.HOT:
        cluster: Cluster = warm_cluster(tmp_path, class_archive, NODES, *PATIENT)
    else:
        cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        if request.param is ProcessStart.COLD:
            cluster.up("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g", *QUICK, *PATIENT)
        yield cluster
    finally:
        cluster.close()


def listed(cluster: Cluster) -> Any:
    return json.loads(cluster.shell.done("node", "list", "-o", "json").out)


def slots_in_use(cluster: Cluster, node: str) -> int:
    """As the node's task manager reports it."""
    managers = cluster.ask(lambda client: client.task_managers())
    there = [manager for manager in managers if manager.emberkeep.node_id == node]
    return sum(manager.slots_number - manager.free_slots for manager in there)


def home_and_other(cluster: Cluster, job_id: JobId) -> tuple[str, str]:
    """The node of the job's driver, and the one where it is not."""
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    home = next(node for node in NODES if node in driver.taskmanager_id)
    return home, next(node for node in NODES if node != home)


def where(executors: list[ExecutorInfo]) -> list[str]:
    return sorted(executor.host for executor in executors)


def usable(job: JobDetailsInfo) -> list[ExecutorInfo]:
    return [executor for executor in job.emberkeep.executors if executor.registered and executor.pid]


def wait_for_hosts(cluster: Cluster, job_id: JobId, hosts: list[str]) -> list[ExecutorInfo]:
    """Executors that Spark can use, once they are on these hosts."""
    job = cluster.wait_for(job_id, lambda job: where(usable(job)) == hosts, f"executors on {hosts}")
    return usable(job)


def has_replacements(job: JobDetailsInfo, blocked: str, other: str) -> bool:
    """Two executors run elsewhere, and those on the blocked node take no new tasks."""
    executors = usable(job)
    there = [executor for executor in executors if executor.host == blocked]
    return all(one.cordoned or one.departure for one in there) and where(executors).count(other) == 2


def wait_for_batches(cluster: Cluster, job_id: JobId, stream: Stream) -> None:
    wanted = stream.batches() + 2
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))


# Arguments: a directory. Its first four map tasks end at once, the others once a file "go" is there. Each task of the
# map stage and of the cached data leaves a line. Prints Spark's own counts by stage.
SHUFFLE = """
import json, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = sys.argv[1]

def note(kind, number):
    with open(f"{place}/{kind}", "a") as lines:
        lines.write(f"{number}\\n")

def keep(number):
    note("cached", number)
    return number

def pair(number):
    while number >= 4 and not os.path.exists(f"{place}/go"):
        time.sleep(0.1)
    note("mapped", number)
    return number % 3, number

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
cached = sc.parallelize(range(6), 6).map(keep).persist()
assert cached.sum() == 15
sums = sc.parallelize(range(10), 10).map(pair).reduceByKey(lambda a, b: a + b, 3)
print(sorted(sums.collect()), cached.sum(), flush=True)
nothing = sc._jvm.java.util.ArrayList()
doubles = sc._gateway.new_array(sc._jvm.double, 0)
stages = sc._jsc.sc().statusStore().stageList(nothing, False, False, doubles, nothing)
found = [stages.apply(index) for index in range(stages.size())]
print(json.dumps([[s.stageId(), s.attemptId(), s.numTasks(), s.numCompleteTasks(), s.numFailedTasks()] for s in found]))
spark.stop()
"""


@pytest.mark.req("BLK-2")
@pytest.mark.req("BLK-18")
@pytest.mark.long
def test_executors_hand_over_shuffle_files_and_cached_blocks_before_they_leave(cluster: Cluster) -> None:
    place = cluster.shell.directory / "shuffle"
    place.mkdir()
    cluster.shell.write("shuffle.py", SHUFFLE)
    job_id = cluster.submit("shuffle.py", arguments=(str(place),), executors=2)
    wait_for_hosts(cluster, job_id, list(NODES))
    assert starts(cluster.job(job_id)) == (cluster.start, {cluster.start})
    mapped = place / "mapped"
    until(lambda: mapped.exists() and len(mapped.read_text().split()) == 4, lambda: cluster.story(job_id))
    _, left = home_and_other(cluster, job_id)
    (leaver,) = (e for e in usable(cluster.job(job_id)) if e.host == left)
    cluster.wait_for_standbys()

    # A task runs there and waits: so what it keeps is handed over while one can look.
    cluster.shell.done("node", "evacuate", left, "--cause", "a disk is failing")

    def handed_over(job: JobDetailsInfo) -> bool:
        departures = {executor.id: executor.departure for executor in job.emberkeep.executors}
        departure = departures.get(leaver.id)
        return departure is not None and departure.begun and departure.shuffle_blocks == departure.cached_blocks == 0

    def staying(job: JobDetailsInfo) -> list[ExecutorInfo]:
        return [executor for executor in usable(job) if executor.departure is None]

    cluster.wait_for(job_id, handed_over, "its blocks are with the other executors")
    job = cluster.wait_for(job_id, lambda job: len(staying(job)) == 2, "it is replaced while it is still there")
    assert {executor.start for executor in staying(job)} == {cluster.start}
    (place / "go").touch()
    cluster.wait_for_end(job_id)
    result, counts = cluster.output(job_id).strip().splitlines()[-2:]
    assert result == "[(0, 18), (1, 12), (2, 15)] 15"
    assert sorted(map(int, mapped.read_text().split())) == list(range(10)), "no map task has run twice"
    assert sorted(map(int, (place / "cached").read_text().split())) == list(range(6)), "nothing cached was lost"
    stages = json.loads(counts)  # a reducer may have asked the executor that was leaving, and then again
    (map_stage,) = {stage for stage, attempt, tasks, *_ in stages if (attempt, tasks) == (0, 10)}
    of_map = [(completed, failed) for stage, _, _, completed, failed in stages if stage == map_stage]
    assert (sum(done for done, _ in of_map), sum(failed for _, failed in of_map)) == (10, 0), stages
    assert not cluster.ask(lambda client: client.exceptions(job_id)).exception_history.entries
    assert cluster.shell.run("node", "evacuate", left, "--merge", "--cause", "again", "--wait").code == 0
    assert slots_in_use(cluster, left) == 0


@pytest.mark.req("BLK-2")
@pytest.mark.req("BLK-4")
@pytest.mark.req("BLK-8")
@pytest.mark.req("BLK-9")
@pytest.mark.req("BLK-17")
@pytest.mark.req("BLK-18")
@pytest.mark.long
def test_nodes_are_blocked_evacuated_and_come_back_under_a_stream(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "stream")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),), executors=2)
    wait_for_hosts(cluster, job_id, list(NODES))
    assert starts(cluster.job(job_id)) == (cluster.start, {cluster.start})
    wait_for_batches(cluster, job_id, stream)
    pid = cluster.wait_for_driver(job_id)
    home, other = home_and_other(cluster, job_id)

    # It times out before the end of this test, and long after the command.
    cluster.shell.done("node", "block", "third", "--cause", "not there yet", "--for", "20s")

    # Where the driver is not, only executors leave, and the stream goes on.
    told = cluster.shell.done("node", "evacuate", other, "--cause", "dust", "--wait").err
    assert f"no slot of {other} is in use" in told
    before = wait_for_hosts(cluster, job_id, [home, home])
    assert slots_in_use(cluster, other) == 0
    wait_for_batches(cluster, job_id, stream)
    cluster.shell.done("node", "unblock", other)
    cluster.shell.done("node", "block", other, "--cause", "wet paint", "--for", "15s")

    # A blocked node keeps what it has, and gets no new tasks once there is room elsewhere.
    told = cluster.shell.done("node", "block", home, "--cause", "fan is loud", "--for", "2h").err
    assert f"node {home} gets no new work until" in told
    wait_for_batches(cluster, job_id, stream)
    assert {executor.pid for executor in usable(cluster.job(job_id))} == {executor.pid for executor in before}
    kill_process(before[0].pid)
    cluster.wait_for(job_id, lambda job: has_replacements(job, home, other), "executors elsewhere")
    wait_for_batches(cluster, job_id, stream)
    assert other not in listed(cluster)["blockedNodes"], "nobody has unblocked it, its time was over"

    # The next JobManager knows it before it gives anything.
    cluster.kill("jobmanager")
    cluster.up()
    entry = listed(cluster)["blockedNodes"][home]
    assert (entry["action"], entry["cause"]) == ("MARK_BLOCKED", "fan is loud")
    again = cluster.shell.run("node", "block", home, "--cause", "again")
    assert again.code == 1
    assert "blocked already: fan is loud" in again.err
    assert cluster.wait_for_driver(job_id) == pid

    # The driver moves, and its stream goes on elsewhere.
    cluster.wait_for_standbys()
    told = cluster.shell.done("node", "evacuate", home, "--cause", "power", "--merge", "--wait").err
    assert f"no slot of {home} is in use" in told
    assert "still there" not in told
    wait_for_hosts(cluster, job_id, [other, other])
    assert cluster.wait_for_driver(job_id, attempt=2) != pid
    driver_start, executor_starts = starts(cluster.job(job_id))
    assert driver_start is cluster.start
    assert cluster.start in executor_starts, "with a standby for one of them, where there are standbys"
    wait_for_batches(cluster, job_id, stream)

    until(lambda: list(listed(cluster)["blockedNodes"]) == [home], "the block of the third node times out")
    cluster.shell.done("node", "unblock", home)
    assert cluster.shell.run("node", "unblock", home).code == 4
    lost = cluster.ask(lambda client: client.exceptions(job_id)).exception_history.entries
    assert len(lost) == 1, f"only the executor that was killed counts: {lost}"
    stream.finish()
    job = cluster.wait_for_end(job_id, JobStatus.FINISHED)
    causes = [(attempt.failure_kind, attempt.root_cause) for attempt in job.emberkeep.attempts]
    assert causes == [(FailureKind.MOVED, f"moved from node {home}"), (None, "")]
    stream.check()


# Arguments: a directory. Uses its executors once a file "go" is there: before that they have nothing to do.
BATCH = """
import os, sys, time
from pyspark.sql import SparkSession

sc = SparkSession.builder.getOrCreate().sparkContext
while not os.path.exists(f"{sys.argv[1]}/go"):
    time.sleep(0.1)
print(sc.parallelize(range(4), 2).sum(), flush=True)
"""


@pytest.mark.long
@pytest.mark.req("BLK-2")
@pytest.mark.req("BLK-18")
def test_a_batch_jobs_driver_stays_if_it_may_is_restarted_elsewhere_if_not_and_waits_where_nothing_is_left(
    cluster: Cluster,
) -> None:
    cluster.shell.write("batch.py", BATCH)
    once = ("-D", "restart-strategy.type=none")  # what is evacuated has not failed
    job_id = cluster.submit("batch.py", *once, arguments=(str(cluster.shell.work),))
    pid = cluster.wait_for_driver(job_id)
    cluster.wait_for_executors(job_id)
    home, other = home_and_other(cluster, job_id)

    cluster.wait_for_standbys()

    # The driver may stay: only executors leave, and it is said what is left there, and why.
    words = ("node", "evacuate", home, "--cause", "power", "--drivers", "wait", "--wait")
    told = cluster.shell.done(*words).err
    assert f"no slot of {home} is in use; 1 driver still there, until its job ends: batch.py" in told
    wait_for_hosts(cluster, job_id, [other])
    assert starts(cluster.job(job_id)) == (cluster.start, {cluster.start})
    assert cluster.wait_for_driver(job_id) == pid

    # It has to go, but there is no other node: the job waits, says so, and goes on when it may.
    cluster.shell.done("node", "evacuate", other, "--cause", "power")
    cluster.shell.done("node", "evacuate", home, "--cause", "again", "--merge")
    assert listed(cluster)["blockedNodes"][home]["drivers"] == "wait", "nobody has said otherwise"
    again = ("node", "evacuate", home, "--cause", "now", "--merge", "--drivers", "restart", "--wait")
    told = cluster.shell.done(*again).err
    assert f"no slot of {home} is in use\n" in told
    cluster.wait_for(job_id, lambda job: "driver places are on blocked nodes" in job.emberkeep.waiting, "a place")
    assert cluster.shell.run("node", "evacuate", other, "--merge", "--cause", "again", "--wait").code == 0
    assert (slots_in_use(cluster, home), slots_in_use(cluster, other)) == (0, 0)
    assert cluster.shell.done("node").out.count("MARK_BLOCKED_AND_EVACUATE_TASKS") == 2
    cluster.wait_for_standbys()
    cluster.shell.done("node", "unblock", other)
    assert cluster.wait_for_driver(job_id, attempt=2) != pid
    wait_for_hosts(cluster, job_id, [other])
    assert starts(cluster.job(job_id)) == (cluster.start, {cluster.start})

    (cluster.shell.work / "go").touch()
    job = cluster.wait_for_end(job_id, JobStatus.FINISHED)
    assert cluster.output(job_id, attempt=2).split() == ["6"]
    causes = [(attempt.failure_kind, attempt.root_cause) for attempt in job.emberkeep.attempts]
    assert causes == [(FailureKind.MOVED, f"moved from node {home}"), (None, "")]
    assert not cluster.ask(lambda client: client.exceptions(job_id)).exception_history.entries

"""Scripts of many kinds on one cluster of two nodes: unmodified ones, ill-behaved ones, ones that want too much."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = pytest.mark.integration

_SPARK = Path(__file__).parents[1] / "spark"
JAR = _SPARK / "java_udf" / "times-seven.jar"
LINEAGE_JAR = _SPARK / "lineage_listener" / "openlineage-spark-stand-in.jar"
NODES = ("127.0.0.2", "127.0.0.3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("scripts"), class_archive.parent))
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def everything_is_given_back(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_all()
    cluster.wait_until_idle()


EVERY_OPTION = """
import json, os, sys, time
import from_py_files  # importable before Spark is up, as with spark-submit
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

def where(_):
    time.sleep(0.2)
    import from_py_files
    with open(SparkFiles.get("lookup.txt")) as lookup, open("unpacked/inside.txt") as inside:
        return os.environ["SPARK_LOCAL_IP"], from_py_files.ANSWER, lookup.read(), inside.read()

spark = (
    SparkSession.builder.master("local[*]").appName("from code")
    .config("spark.executor.memory", "600m").config("spark.driver.memory", "600m").getOrCreate()
)
context = spark.sparkContext
while context._jsc.sc().statusTracker().getExecutorInfos().__len__() < 3:
    time.sleep(0.2)
spark.udf.registerJavaFunction("times_seven", "emberkeep.test.TimesSeven", LongType())
first = {
    "places": sorted(set(context.parallelize(range(32), 16).map(where).collect())),
    "sevens": [row[0] for row in spark.sql("select times_seven(id) from range(1, 4)").collect()],
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "heap": context._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20,
    "arguments": sys.argv[1:],
    "application": context.applicationId,
}
print(json.dumps(first), flush=True)
spark.stop()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
spark = SparkSession.builder.master("local[2]").config("spark.executor.instances", "1").getOrCreate()
print(json.dumps({"count": spark.range(100).count(), "application": spark.sparkContext.applicationId}), flush=True)
# Never stops Spark.
"""


@pytest.mark.long
def test_every_option_static_configuration_in_code_and_a_second_session(cluster: Cluster) -> None:
    shell = cluster.shell
    shell.write("from_py_files.py", "ANSWER = 42\n")
    shell.write("lookup.txt", "looked up")
    with tarfile.open(shell.work / "archive.tar.gz", "w:gz") as archive:
        archive.add(shell.write("inside.txt", "unpacked"), "inside.txt")
    shell.write("every_option.py", EVERY_OPTION)
    go = shell.directory / "second-session"
    job_id = cluster.submit(
        "every_option.py",
        *("--py-files", "from_py_files.py", "--files", "lookup.txt", "--archives", "archive.tar.gz#unpacked"),
        *("--jars", str(JAR), "--conf", "spark.sql.shuffle.partitions=3"),
        arguments=(str(go), "--conf"),
        executors=2,
    )
    executors = cluster.wait_for_executors(job_id, 2)
    assert {executor.host for executor in executors} == set(NODES)
    assert {executor.heap_mb for executor in executors} == {600}
    until(lambda: cluster.output(job_id).count("\n") == 1, lambda: cluster.story(job_id))
    cluster.wait_for(job_id, lambda job: not job.emberkeep.executors, "slots go back when Spark is stopped")
    go.touch()
    cluster.wait_for_end(job_id)
    first, second = map(json.loads, cluster.output(job_id).splitlines())
    assert first["places"] == [[node, 42, "looked up", "unpacked"] for node in NODES]
    assert first["sevens"] == [7, 14, 21]
    assert first["partitions"] == "3"
    assert 550 <= first["heap"] <= 610
    assert first["arguments"] == [str(go), "--conf"]
    assert second["count"] == 100
    assert second["application"] != first["application"]
    said = cluster.output(job_id, "driver-stderr")
    assert len(re.findall(r"^emberkeep: spark\.master=local\[\*\] is overridden", said, re.MULTILINE)) == 1, said
    assert "Traceback" not in said


TWO_ATTEMPTS = """
import os, signal, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(1).count()
print([spark.conf.get(f"spark.openlineage.rootParent{part}") for part in ("JobNamespace", "JobName", "RunId")])
spark.stop()  # after the listener has seen the application
try:
    open(sys.argv[1], "x")
except FileExistsError:
    sys.exit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_the_lineage_listener_has_the_job_as_its_parent(cluster: Cluster) -> None:
    """A listener of the test's own has the name of OpenLineage's, whose jar is nowhere on this machine."""
    shell = cluster.shell
    shell.write("lineage.py", TWO_ATTEMPTS)
    seen = shell.directory / "parents"
    job_id = cluster.submit(
        "lineage.py",
        *("--name", "etl", "--jars", str(LINEAGE_JAR), "-D", "execution.openlineage=true"),
        *("--conf", f"spark.standIn.file={seen}"),
        *("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=0s"),
        arguments=(str(shell.directory / "killed"),),
    )
    cluster.wait_for_end(job_id)
    assert seen.read_text() == f"emberkeep\tetl\t{UUID(job_id)}\n" * 2, "the same parent in both attempts"
    assert cluster.output(job_id).splitlines()[-1] == str(["emberkeep", "etl", str(UUID(job_id))])


@pytest.mark.long
def test_a_job_without_the_lineage_listeners_jar_says_what_is_missing(cluster: Cluster) -> None:
    cluster.shell.write("lineage.py", TWO_ATTEMPTS)
    job_id = cluster.submit("lineage.py", "-D", "execution.openlineage=true")
    cluster.wait_for_end(job_id, JobStatus.FAILED)
    shown = cluster.shell.done("info", job_id).out
    assert "execution.openlineage is on, but the job has no openlineage-spark jar" in shown
    said = cluster.output(job_id, "driver-stderr")
    assert "--packages io.openlineage:openlineage-spark_2.13" in said
    assert "Exception" not in said
    assert "Traceback" not in said


@pytest.mark.long
def test_streams_with_and_without_an_own_checkpoint_beside_each_other(cluster: Cluster) -> None:
    shell = cluster.shell
    shell.write("stream.py", SCRIPT)
    own, default = (Stream(shell.directory / name) for name in ("own", "default"))
    checkpoint = shell.directory / "own-checkpoint"
    shell.write("plain.py", "print('between the others')\n")
    jobs = {
        own: cluster.submit("stream.py", arguments=(str(own.place), f"checkpointLocation={checkpoint}")),
        default: cluster.submit("stream.py", arguments=(str(default.place),)),
    }
    cluster.wait_for_end(cluster.submit("plain.py"))
    for stream, job_id in jobs.items():
        until(lambda stream=stream: stream.batches() >= 3, lambda job_id=job_id: cluster.story(job_id))  # type: ignore[misc]
    shown = cluster.wait_for(
        jobs[default], lambda job: any(query.batch_id >= 2 for query in job.emberkeep.queries), "progress is shown"
    ).emberkeep.queries[0]
    assert str(shell.state / "storage" / "checkpoints" / jobs[default]) in shown.checkpoint_location
    assert shown.state_rows > 0
    assert sorted(path.name for path in checkpoint.iterdir())[-1] == "state"
    for stream, job_id in jobs.items():
        stream.finish()
        cluster.wait_for_end(job_id)
        stream.check()
    assert "has no checkpointLocation" in cluster.output(jobs[default], "driver-stderr")
    assert "has no checkpointLocation" not in cluster.output(jobs[own], "driver-stderr")


FORKS = """
import os, time
ends = os.pipe()
if os.fork() == 0:
    os.setsid()
    print("child", os.getpid(), flush=True)
    os.write(ends[1], b".")
    time.sleep(3600)
os.read(ends[0], 1)
print("parent", os.getpid(), flush=True)
"""

DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", os.getpid(), flush=True)
while True:
    time.sleep(1)
"""


def alive(shell: Shell, pids: set[int]) -> set[int]:
    return pids & {seen.identity.pid for seen in shell.traces.processes()}


def test_scripts_that_leave_children_or_ignore_sigterm(cluster: Cluster) -> None:
    shell = cluster.shell
    shell.write("forks.py", FORKS)
    shell.write("deaf.py", DEAF)
    deaf = cluster.submit("deaf.py", "-D", "task.cancellation.timeout=2s")
    forks = cluster.submit("forks.py")
    cluster.wait_for_end(forks)
    pids = {int(line.split()[1]) for line in cluster.output(forks).splitlines()}
    assert len(pids) == 2
    until(lambda: not alive(shell, pids), lambda: str(shell.traces.processes()))
    until(lambda: "deaf" in cluster.output(deaf), lambda: cluster.story(deaf))
    cluster.cancel(deaf)
    job = cluster.job(deaf)
    assert job.state is JobStatus.CANCELED
    # Killed not before its time, by the machine's own record of it.
    assert job.timestamps[JobStatus.CANCELED] - job.timestamps[JobStatus.CANCELLING] >= 2000
    assert not alive(shell, {int(cluster.output(deaf).split()[1])})


def test_what_can_never_fit_is_refused_or_fails_with_the_reason(cluster: Cluster) -> None:
    shell = cluster.shell
    shell.write("plain.py", "print('ran')\n")
    before = len(cluster.ask(lambda client: client.jobs()))
    for option, whose in (("--driver-memory", "the driver"), ("--executor-memory", "an executor")):
        ended = shell.run("submit", option, "100g", "plain.py")
        assert ended.code == 2, ended
        assert f"no task manager is large enough for {whose}" in ended.err, ended
        assert "4096 MiB" in ended.err, ended
    assert len(cluster.ask(lambda client: client.jobs())) == before
    # Static configuration in the script is known only when it runs.
    shell.write(
        "wants_too_much.py",
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.config('spark.executor.memory', '100g').getOrCreate()\n"
        "spark.range(10).count()\n",
    )
    job_id = cluster.submit("wants_too_much.py", "-D", "slot.request.timeout=3s")
    job = cluster.wait_for_end(job_id, JobStatus.FAILED)
    assert "no task manager is large enough" in job.emberkeep.root_cause
    assert job.emberkeep.attempt == 1


TAKES_ALL = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("count", spark.range(100).repartition(4).count(), flush=True)
while len(sys.argv) > 1:
    time.sleep(1)
"""


@pytest.mark.long
def test_what_cannot_be_met_now_waits_visibly_and_runs_later(cluster: Cluster) -> None:
    shell = cluster.shell
    shell.write("takes.py", TAKES_ALL)
    greedy = cluster.submit("takes.py", "--executor-cores", "2", arguments=("for ever",), executors=2)
    cluster.wait_for_executors(greedy, 2)
    modest = cluster.submit("takes.py")
    cluster.wait_for(modest, lambda job: "missing" in job.emberkeep.waiting, "the job says what it waits for")
    shown = json.loads(shell.done("info", modest, "-o", "json").out)["job"]
    assert shown["state"] == "RUNNING"
    assert re.match(r"1 of 1 slot \(1 core and 896 MiB\) is missing: ", shown["emberkeep"]["waiting"])
    assert "1 of 1 slot" in shell.done("list").out
    cluster.cancel(greedy)
    assert cluster.wait_for_end(modest).emberkeep.waiting == ""
    assert cluster.output(modest) == "count 100\n"

"""Processes killed in the middle of jobs, on one cluster of two nodes: executors, drivers, nodes, the JobManager."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from emberkeep.adapters.shared_storage.progress_files import read_progress
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.jobs.traces.recovery_trace import Milestone, RecoveryCause
from emberkeep.protocol.rest_checkpoints import CheckpointInfo
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.standbys.warm_cluster import starts, warm_cluster
from tests.integration.streams import SCRIPT, Stream

pytestmark = pytest.mark.integration

NODES = ("127.0.0.2", "127.0.0.3")
UP = ("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g", *QUICK)
QUICK_RESTART = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("failures"), class_archive.parent))
    try:
        cluster.up(*UP)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    """The same nodes, with standby processes."""
    cluster = warm_cluster(tmp_path_factory.mktemp("warm-failures"), class_archive, NODES)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(params=[ProcessStart.COLD, pytest.param(ProcessStart.HOT, marks=pytest.mark.long)])
def either(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    """How the processes of jobs start is the parameter."""
    chosen: Cluster = cluster if request.param is ProcessStart.COLD else request.getfixturevalue("warm")
    yield chosen
    chosen.cancel_all()
    chosen.wait_until_idle()


@pytest.fixture(autouse=True)
def everything_is_given_back(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_all()
    cluster.wait_until_idle()


def wait_for_batches(cluster: Cluster, job_id: str, stream: Stream, more: int = 3) -> None:
    """Until that many more batches are there than now."""
    wanted = stream.batches() + more
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))  # type: ignore[arg-type]


SHUFFLE = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
place = Path(sys.argv[1])
context = SparkSession.builder.getOrCreate().sparkContext

def slowly(pair):
    while not (place / "go").exists():
        (place / f"waits-{os.getppid()}-{os.getpid()}").touch()
        time.sleep(0.1)
    return pair

sums = context.parallelize(range(1000), 8).map(lambda n: (n % 10, n)).reduceByKey(lambda a, b: a + b, 4)
print(sorted(sums.map(slowly).collect()), flush=True)
"""


@pytest.mark.long
def test_a_lost_executor_of_a_batch_job_is_replaced_and_its_shuffle_files_are_made_again(cluster: Cluster) -> None:
    place = cluster.shell.directory / "shuffle"
    place.mkdir()
    cluster.shell.write("shuffle.py", SHUFFLE)
    job_id = cluster.submit("shuffle.py", arguments=(str(place),), executors=2)
    executors = cluster.wait_for_executors(job_id, 2)
    until(lambda: list(place.glob("waits-*")), lambda: cluster.story(job_id))
    victim = executors[0]
    kill_process(victim.pid)
    job = cluster.wait_for(
        job_id,
        lambda job: (
            victim.id not in {executor.id for executor in job.emberkeep.executors}
            and sum(executor.registered for executor in job.emberkeep.executors) == 2
        ),
        "another executor takes its place",
    )
    assert job.emberkeep.attempt == 1
    (place / "go").touch()
    own = cluster.wait_for_end(job_id).emberkeep
    assert cluster.output(job_id) == f"{[(k, sum(range(k, 1000, 10))) for k in range(10)]}\n"
    assert own.work is not None
    assert own.course is not None
    assert own.work.shuffle_write > 0
    assert (own.course.shuffle_write[-1], own.course.task_time[-1]) == (own.work.shuffle_write, own.work.task_time)
    told = cluster.ask(lambda client: client.exceptions(job_id)).exception_history.entries
    lost = [entry.message for entry in told if entry.exception_name == "ExecutorLost"]
    assert lost == [f"executor {victim.id} on {victim.taskmanager_id} was killed by signal 9"], told


def test_a_stream_survives_the_loss_of_its_executor_and_its_driver(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "killed-processes")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", *QUICK_RESTART, arguments=(str(stream.place),))
    wait_for_batches(cluster, job_id, stream)

    victim = cluster.wait_for_executors(job_id)[0]
    kill_process(victim.pid)
    cluster.wait_for(job_id, lambda job: victim.id not in {e.id for e in job.emberkeep.executors}, "its loss is seen")
    cluster.wait_for_executors(job_id)
    wait_for_batches(cluster, job_id, stream)

    before = until(lambda: kept_runs(cluster, job_id), lambda: cluster.story(job_id))
    driver = cluster.wait_for_driver(job_id)
    kill_process(driver)
    assert cluster.wait_for_driver(job_id, attempt=2) != driver
    wait_for_batches(cluster, job_id, stream)

    stream.finish()
    job = cluster.wait_for_end(job_id)
    assert [attempt.failure_kind for attempt in job.emberkeep.attempts] == [FailureKind.LOST, None]
    assert job.emberkeep.attempts[0].exit_code == 128 + signal.SIGKILL
    assert len(stream.drivers()) == 2
    stream.check()
    check_traces(job)
    assert runs_with_progress(cluster, job_id) > before, "the history continues over attempts, and outlives the job"
    assert job.emberkeep.work is not None
    assert (job.emberkeep.work.tasks_finished > 0, job.emberkeep.work.tasks_running) == (True, 0)


@pytest.mark.long
def test_a_stream_survives_the_loss_of_its_drivers_jvm(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "killed-jvm")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", *QUICK_RESTART, arguments=(str(stream.place),))
    wait_for_batches(cluster, job_id, stream)
    jvms = [child for child in psutil.Process(cluster.wait_for_driver(job_id)).children() if "java" in child.name()]
    assert len(jvms) == 1
    kill_process(jvms[0].pid)
    cluster.wait_for_driver(job_id, attempt=2)
    wait_for_batches(cluster, job_id, stream)

    stream.finish()
    job = cluster.wait_for_end(job_id)
    assert [attempt.failure_kind for attempt in job.emberkeep.attempts] == [FailureKind.LOST, None]
    assert "JVM" in job.emberkeep.attempts[0].root_cause
    assert len(stream.drivers()) == 2
    stream.check()
    check_traces(job)


def runs_with_progress(cluster: Cluster, job_id: str) -> set[str]:
    """The runs of streaming queries in the job's progress history."""
    history = cluster.ask(lambda client: client.progress.read(JobId(job_id)))
    return {record.run_id for record in history.records}


def kept_runs(cluster: Cluster, job_id: str) -> set[str]:
    """The runs in what the driver has written of the history; the rest of it dies with the driver."""
    root = cluster.shell.state / "storage" / "checkpoints" / job_id
    return {record.run_id for query in read_progress(root).queries for record in query.records}


def check_traces(job: JobDetailsInfo) -> None:
    """Each attempt has reached all milestones, in their order."""
    traces = [attempt.recovery for attempt in job.emberkeep.attempts if attempt.recovery is not None]
    assert [(trace.cause, trace.start) for trace in traces] == [
        (RecoveryCause.SUBMISSION, ProcessStart.COLD),
        (RecoveryCause.LOST, ProcessStart.COLD),
    ]
    restart = {Milestone.DETECTED, Milestone.DECIDED, Milestone.GONE}
    for trace, without in zip(traces, (restart, {Milestone.SUBMITTED}), strict=True):
        reached = [Milestone(each.milestone) for each in trace.milestones]
        assert set(reached) == set(Milestone) - without - {Milestone.LAST_CONTACT}, job.emberkeep.attempts
        for together in (BY_THE_JOB_MANAGER, BY_THE_DRIVER):
            assert [each for each in reached if each in together] == [each for each in together if each in reached]


# Each list has one clock. Executors and queries start beside each other.
BY_THE_JOB_MANAGER = list(Milestone)[: list(Milestone).index(Milestone.REGISTERED) + 1]
BY_THE_DRIVER = [
    *(Milestone.JVM_STARTED, Milestone.CONTEXT_BEGUN, Milestone.CONTEXT_UP, Milestone.QUERY_PLANNED),
    *(Milestone.STAGE_COMPLETED, Milestone.BATCH_COMMITTED),
]


GOES_BACK = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])
checkpoint = place / "checkpoint"
if (place / "go-back").exists():
    for path in [*checkpoint.glob("commits/*"), *checkpoint.glob("offsets/*")]:
        if path.name.isdecimal() and int(path.name) > 1:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

spark = SparkSession.builder.getOrCreate()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
writer = rates.writeStream.queryName("rates").format("noop").trigger(processingTime="300 milliseconds")
query = writer.start(checkpointLocation=str(checkpoint))
while not (place / "finish").exists() and not query.awaitTermination(0.3):
    pass
query.stop()
"""


@pytest.mark.req("HA-8")
@pytest.mark.long
def test_committed_batches_are_known_and_a_checkpoint_that_has_gone_back_is_noticed(cluster: Cluster) -> None:
    place = cluster.shell.directory / "goes-back"
    place.mkdir()
    cluster.shell.write("goes_back.py", GOES_BACK)
    job_id = cluster.submit("goes_back.py", *QUICK_RESTART, arguments=(str(place),))

    def newest() -> CheckpointInfo | None:
        return cluster.ask(lambda client: client.checkpoints(job_id)).latest.completed

    def committed() -> int:
        return max((int(path.name) for path in place.glob("checkpoint/commits/*") if path.name.isdecimal()), default=-1)

    def known() -> CheckpointInfo | None:
        checkpoint = newest()
        assert checkpoint is None or checkpoint.id <= committed(), "only what is committed is told"
        return checkpoint if checkpoint is not None and checkpoint.id >= 5 else None

    checkpoint = until(known, lambda: cluster.story(job_id))
    assert (checkpoint.external_path, checkpoint.emberkeep.query) == (str(place / "checkpoint"), "rates")
    assert checkpoint.external_path in cluster.shell.done("info", job_id).out

    (place / "go-back").touch()
    kill_process(cluster.wait_for_driver(job_id))
    cluster.wait_for_driver(job_id, attempt=2)
    notice = re.compile(r"batch (\d+) was committed to the checkpoint (\S+) before, .* batch is 1\.")
    found = until(lambda: notice.search(cluster.output(job_id, "driver-stderr", 2)), lambda: cluster.story(job_id))
    assert int(found[1]) >= 5
    assert found[2] == str(place / "checkpoint")

    (place / "finish").touch()
    cluster.wait_for_end(job_id)
    assert newest() is None, "nothing of an ended job is to be continued from"


@pytest.mark.long
def test_a_lost_node_takes_executors_or_the_driver_with_it_and_the_stream_goes_on_elsewhere(either: Cluster) -> None:
    cluster = either
    stream = Stream(cluster.shell.directory / "lost-nodes")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", *QUICK_RESTART, arguments=(str(stream.place),), executors=2)
    cluster.wait_for_executors(job_id, 2)
    assert starts(cluster.job(job_id)) == (cluster.start, {cluster.start})
    wait_for_batches(cluster, job_id, stream)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    (other,) = {"tm-127.0.0.2", "tm-127.0.0.3"} - {driver.taskmanager_id}

    cluster.wait_for_standbys()
    cluster.lose_node(other)
    cluster.wait_for(
        job_id,
        lambda job: (
            [executor.taskmanager_id for executor in job.emberkeep.executors if executor.registered]
            == [driver.taskmanager_id] * 2
        ),
        "both executors are on the node that is left",
    )
    wait_for_batches(cluster, job_id, stream)
    assert cluster.job(job_id).emberkeep.attempt == 1

    cluster.up()
    cluster.wait_for_standbys()
    cluster.lose_node(driver.taskmanager_id)
    cluster.wait_for_driver(job_id, attempt=2)
    job = cluster.job(job_id)
    assert starts(job)[0] is cluster.start
    assert job.emberkeep.driver is not None
    assert job.emberkeep.driver.taskmanager_id == other
    wait_for_batches(cluster, job_id, stream)
    cluster.up()
    stream.finish()
    cluster.wait_for_end(job_id)
    assert len(stream.drivers()) == 2
    stream.check()


SLEEPS = """
import time
print("sleeping", flush=True)
time.sleep(3600)
"""

GATED = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("before", spark.range(10).count(), flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("after", spark.range(20).count(), flush=True)
"""


@pytest.mark.long
def test_a_running_job_does_not_notice_the_loss_of_the_job_manager(cluster: Cluster) -> None:
    gate = cluster.shell.directory / "gate"
    cluster.shell.write("gated.py", GATED)
    running = cluster.shell.start("run", "--num-executors", "1", "--executor-memory", "512m", "gated.py", str(gate))
    until(lambda: "before 10" in running.out, lambda: str(running))
    job_id = next(job.jid for job in cluster.ask(lambda client: client.jobs()) if not job.state.is_globally_terminal)
    driver, executors = cluster.wait_for_driver(job_id), cluster.wait_for_executors(job_id)
    cluster.shell.write("sleeps.py", SLEEPS)
    ended = cluster.submit("sleeps.py")
    cluster.cancel(ended)

    cluster.kill("jobmanager")
    said = cluster.up()
    assert "starting the JobManager" in said.err
    assert "starting task manager" not in said.err
    assert cluster.wait_for_driver(job_id) == driver
    assert [executor.pid for executor in cluster.wait_for_executors(job_id)] == [executor.pid for executor in executors]
    assert cluster.job(ended).state is JobStatus.CANCELED
    gate.touch()
    assert running.wait().code == 0
    assert running.out == "before 10\nafter 20\n"
    assert cluster.job(job_id).emberkeep.attempt == 1


def test_restart_strategies_are_kept_to(cluster: Cluster) -> None:
    cluster.shell.write("sleeps.py", SLEEPS)
    never = cluster.submit("sleeps.py", "-D", "restart-strategy.type=none")
    once = cluster.submit("sleeps.py", *QUICK_RESTART, "-D", "restart-strategy.fixed-delay.attempts=1")
    kill_process(cluster.wait_for_driver(never))
    kill_process(cluster.wait_for_driver(once))
    kill_process(cluster.wait_for_driver(once, attempt=2))
    for job_id, attempts in ((never, 1), (once, 2)):
        job = cluster.wait_for_end(job_id, JobStatus.FAILED)
        assert len(job.emberkeep.attempts) == attempts
        assert "killed by signal 9" in job.emberkeep.root_cause
        assert job.emberkeep.exit_code == 128 + signal.SIGKILL
    cluster.shell.write("fails.py", "raise SystemExit(7)\n")
    job = cluster.wait_for_end(cluster.submit("fails.py", *QUICK_RESTART), JobStatus.FAILED)
    assert (job.emberkeep.exit_code, len(job.emberkeep.attempts)) == (7, 1)  # the script's own word is final


@pytest.mark.req("SAFE-16")
@pytest.mark.long
def test_a_second_task_manager_under_the_same_id_is_refused(cluster: Cluster) -> None:
    shell, record = cluster.shell, cluster.record
    shell.write("waits.py", "import time\nwhile True: time.sleep(0.1)\n")
    job_id = cluster.submit("waits.py")
    driver = cluster.wait_for_driver(job_id)
    place = cluster.job(job_id).emberkeep.driver
    assert place is not None
    own = cluster.daemon(place.taskmanager_id)
    host = own.name.removeprefix("tm-")
    definitions = {
        "taskmanager.resource-id": own.name,
        "taskmanager.host": host,
        "jobmanager.rpc.address": cluster.address,
        "security.token-file": record.token_file,
        "process.taskmanager.working-dir": own.directory,
        "heartbeat.interval": "500ms",
        "heartbeat.timeout": "4s",
    }

    def second(**changes: str) -> list[str]:
        values = definitions | {key.replace("_", "."): value for key, value in changes.items()}
        return ["taskmanager", *(word for key, value in values.items() for word in ("-D", f"{key}={value}"))]

    ended = shell.run(*second())
    assert ended.code == 1, ended
    assert f"{own.directory} is in use by task manager {own.name}: pid {own.identity.pid} on " in ended.err
    definitions |= {"process.taskmanager.working-dir": str(shell.directory / "second")}
    for other in ("127.0.0.4", host):
        ended = shell.run(*second(taskmanager_host=other))
        assert ended.code == 1, ended
        assert f"refuses task manager {own.name}" in ended.err
        assert re.search(
            rf"pid {own.identity.pid} on {host} .*, so pid \d+ on {other} .* cannot register with it", ended.err
        )
        assert own.is_running
    registered = {tm.id: tm.emberkeep.pid for tm in cluster.ask(lambda client: client.task_managers())}
    assert registered[own.name] == own.identity.pid  # type: ignore[index]
    assert cluster.wait_for_driver(job_id) == driver
    assert cluster.job(job_id).emberkeep.attempt == 1
    cluster.cancel(job_id)
    cluster.wait_for_end(job_id, JobStatus.CANCELED)

    # Its working directory is lost: the next one on another disk gets in when the first one is silent.
    cluster.kill(own.name)
    newer = shell.start(*second())

    def pid_in_use() -> int:
        found = cluster.ask(lambda client: client.task_managers())
        return {str(tm.id): tm.emberkeep.pid for tm in found}.get(own.name, 0)

    until(lambda: pid_in_use() == newer.process.pid, lambda: str(newer))
    refused = shell.run("cluster", "up", *UP)
    assert refused.code != 0, refused
    said = refused.out + refused.err
    assert f"pid {newer.process.pid} on {host}" in said, refused
    assert "cannot register with it" in said
    assert newer.process.poll() is None, newer
    newer.process.send_signal(signal.SIGTERM)
    assert newer.wait().code == 0
    cluster.up()
    assert cluster.daemon(own.name).is_running

"""A Spark Connect server as a job: its address stays while leader and driver are killed, and a client continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Running, Shell
from tests.integration.conditions import DEADLINE, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

# A notebook: it says what it does, and waits for a line of input where the driver is killed.
CLIENT = """
import sys, time
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

def session():
    return SparkSession.builder.remote(sys.argv[1]).getOrCreate()

spark = session()
spark.range(10).createOrReplaceTempView("kept_by_the_session")
print("first", spark.sql("select sum(id) from kept_by_the_session").collect()[0][0], flush=True)

def slow(x):
    time.sleep(8)
    return x + 7

print("a query runs", flush=True)
print("kept", spark.range(1).select(udf(slow, "long")("id")).collect()[0][0], flush=True)
sys.stdin.readline()
try:
    spark.sql("select sum(id) from kept_by_the_session").collect()
    print("the session is still there", flush=True)
except PySparkException as error:
    print("lost", error.getCondition(), flush=True)
spark.stop()
spark = session()
plus_one = udf(lambda x: x + 1, "long")
print("second", sum(row[0] for row in spark.range(10).select(plus_one("id")).collect()), flush=True)
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path / "site", class_archive.parent))
    try:
        cluster.up("--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


@contextmanager
def opened(shell: Shell) -> Iterator[Running]:
    """`emberkeep connect open`, once it has printed the address."""
    command = shell.start("connect", "open", "--port", "0")
    try:
        until(lambda: "\n" in command.out or command.process.poll() is not None, lambda: str(command), 120)
        yield command
    finally:
        command.process.send_signal(signal.SIGINT)
        command.wait()


@contextmanager
def client(shell: Shell, address: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(shell.write("client.py", CLIENT)), address],
        env={**shell.environment, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_client_goes_on_at_the_same_address_after_leader_and_driver_were_killed(cluster: Cluster) -> None:
    shell = cluster.shell
    job_id = JobId(shell.done("connect", "up", "-q", "--num-executors", "1", *SMALL).out.strip())
    assert shell.done("connect", "up", "-q").out.strip() == job_id  # it runs already
    with opened(shell) as command:
        address = command.out.strip()
        assert address.startswith("sc://localhost:"), command
        with client(shell, address.partition(";")[0]) as stranger:  # without the token
            assert line(stranger) == ""
            assert stranger.wait(DEADLINE) == 1
        with client(shell, address) as process:
            assert line(process) == "first 45", cluster.story(job_id)
            assert line(process) == "a query runs"
            cluster.wait_for(job_id, lambda job: job.emberkeep.active_stages, "the query's stage runs")
            cluster.kill("jobmanager")
            cluster.up()
            assert line(process) == "kept 7", cluster.story(job_id)
            os.kill(cluster.wait_for_driver(job_id), signal.SIGKILL)
            cluster.wait_for_driver(job_id, attempt=2)
            assert process.stdin is not None
            print(file=process.stdin, flush=True)
            # PySpark closes the session by the first condition, and its clean-up may meet the second one.
            assert line(process) in {"lost INVALID_HANDLE.SESSION_CHANGED", "lost NO_ACTIVE_SESSION"}
            assert line(process) == "second 55", cluster.story(job_id)
            assert process.wait(DEADLINE) == 0
        status = shell.done("connect", "status")
        assert "RUNNING" in status.out
        shell.done("connect", "down")
    refused = shell.run("connect", "open", job_id)
    assert refused.code != 0
    assert "runs no Spark Connect server" in refused.err, refused

"""Logs of every process of a cluster, while it runs and after its end: by the command, and over REST as plain text."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from email.message import Message
from typing import cast

import pytest

from emberkeep.base.ids import JobId
from emberkeep.base.tls.contexts import client_context
from emberkeep.client.calls.logs import job_log_path
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol import rest_logs
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import DEADLINE, until

pytestmark = [pytest.mark.integration, pytest.mark.req("BLOB-20")]

SCRIPT = """
import pathlib, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

def work(number):
    print(f"task {number} speaks", file=sys.stderr, flush=True)
    return number

print(spark.sparkContext.parallelize(range(4), 2).map(work).sum())
for number in range(100_000):
    print(f"line {number:06d}")
sys.stdout.flush()
print("warned", file=sys.stderr, flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("the last line")
"""
LINE = len("line 000000\n")


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        cluster.up("--task-managers", "1", *QUICK)
        yield cluster
    finally:
        cluster.close()


def test_logs_of_all_processes(cluster: Cluster) -> None:
    shell, go = cluster.shell, cluster.shell.work / "go"
    job_id = cluster.submit(shell.write("speak.py", SCRIPT), arguments=(str(go),))
    until(lambda: "line 099999" in _tail(cluster, job_id), lambda: cluster.story(job_id))

    running = shell.done("logs", job_id)
    assert running.out.startswith("6\nline 000000\n")
    assert running.out.count("line ") == 100_000
    assert "warned" in running.err
    assert shell.done("logs", job_id, "--range", f"2-{1 + 2 * LINE}").out == "line 000000\nline 000001\n"
    following = shell.start("logs", "-f", job_id)
    until(lambda: "line 099999" in following.out, lambda: str(following))
    go.touch()
    cluster.wait_for_end(job_id)
    assert following.wait().out.endswith("the last line\n")

    ended = shell.done("logs", job_id)
    assert ended.out == running.out + "the last line\n"
    assert shell.done("logs", job_id, "--range", "-14").out == "the last line\n"
    _check_executor_logs(cluster, job_id)
    _check_daemon_logs(cluster)
    # What was served is let go of, whoever has read it.
    assert cluster.ask(_references) == []


def _tail(cluster: Cluster, job_id: JobId) -> str:
    return cluster.shell.run("logs", job_id, "--range", "-100").out


def _check_executor_logs(cluster: Cluster, job_id: JobId) -> None:
    ended = cluster.shell.done("logs", job_id, "--executor", "0")
    assert "speaks" in ended.err
    listed = cluster.shell.done("logs", job_id, "--list").out
    for kind in ("driver-stdout", "driver-stderr", "executor-stdout", "executor-stderr"):
        assert kind in listed
    headers = _headers(cluster, job_id)
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers[rest_logs.LOG_COMPLETE_HEADER] == "true"


def _headers(cluster: Cluster, job_id: JobId) -> Message:
    """Of a log as any HTTP client gets it."""
    logs = cluster.ask(lambda client: client.logs.of_job(job_id)).logs
    log = next(log for log in logs if log.kind == "executor-stderr")
    endpoint = local_endpoint(cluster.record, cluster.shell.state)
    request = urllib.request.Request(
        f"{endpoint.url}/v1{job_log_path(job_id, log.id)}", headers={"Authorization": f"Bearer {endpoint.token}"}
    )
    with urllib.request.urlopen(request, timeout=DEADLINE, context=client_context(endpoint.ca)) as answer:
        return cast(Message, answer.headers)


def _check_daemon_logs(cluster: Cluster) -> None:
    shell = cluster.shell
    task_manager = cluster.ask(lambda client: client.task_managers())[0].id
    own = shell.done("logs", "--taskmanager", task_manager).out
    assert '"event"' in own
    assert shell.done("logs", "--taskmanager", task_manager, "--range", "0-9").out == own[:10]
    assert '"event"' in shell.done("logs", "--jobmanager").out
    assert "jobmanager.log" in shell.done("logs", "--jobmanager", "--list").out


async def _references(client: RestClient) -> list[str]:
    return [name for blob in (await client.blobs.all()).blobs for name in blob.references if name.startswith("log-")]


def test_logs_of_a_task_manager_that_is_gone(cluster: Cluster) -> None:
    task_manager = cluster.ask(lambda client: client.task_managers())[0].id
    cluster.kill(task_manager)

    def refused() -> bool:
        ended = cluster.shell.run("logs", "--taskmanager", task_manager)
        return ended.code == 4 and "its logs cannot be read" in ended.err

    until(refused, lambda: str(cluster.shell.run("logs", "--taskmanager", task_manager)))

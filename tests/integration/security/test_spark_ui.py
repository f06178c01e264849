"""The Spark UI of a real driver: closed on its machine, open through the JobManager's port and `emberkeep spark-ui`."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, HTTPSHandler, OpenerDirector, Request, build_opener

import psutil
import pytest

from emberkeep.adapters.shared_storage.event_logs import FILES_KEPT, attempt_directory
from emberkeep.base.tls.contexts import client_context
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Running, Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-10")]

SCRIPT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(10).selectExpr("id % 3 AS key").groupBy("key").count().collect()
print(spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId, flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""
RESTARTS = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=0s")
PAGES = {
    "/": "Spark Jobs",
    "/SQL/": "SQL / DataFrame",
    "/executors/": "Executors",
    "/environment/": "Spark Properties",
    "/static/webui.js": "function",
}


def answer_of(url: str, opener: OpenerDirector, method: str = "GET") -> tuple[int, str]:
    """Return status and text."""
    try:
        with opener.open(Request(url, method=method), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def listeners(pid: int) -> set[tuple[str, int]]:
    """Return the addresses at which the JVM of a driver listens."""
    jvms = [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"]
    found = [each.laddr for jvm in jvms for each in jvm.net_connections() if each.status == psutil.CONN_LISTEN]
    return {(address.ip.removeprefix("::ffff:"), address.port) for address in found}


def check_command(command: Running, app_id: str) -> None:
    """Open the link of `emberkeep spark-ui` and the pages behind it, as a browser does; end the command."""
    link = until(lambda: command.out.partition("\n")[0], lambda: str(command))
    try:
        check_shown(link, app_id)
    finally:
        command.process.send_signal(signal.SIGINT)
        assert command.wait().code == 0


def check_shown(link: str, app_id: str) -> None:
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    origin = link.partition("/emberkeep-open/")[0]
    assert answer_of(f"{origin}/jobs/", browser)[0] == 403
    assert answer_of(link, browser)[0] == 200
    check_pages(origin, browser, app_id)
    assert "(kill)" not in answer_of(f"{origin}/stages/", browser)[1]
    assert answer_of(f"{origin}/stages/stage/kill/?id=1", browser, "POST")[0] == 405


def check_pages(root: str, browser: OpenerDirector, app_id: str) -> None:
    """Read the pages below ``root``, and see that no link on them leads out of it."""
    base = urlsplit(root).path
    for path, part in {**PAGES, f"/api/v1/applications/{app_id}/jobs": '"SUCCEEDED"'}.items():
        status, text = answer_of(root + path, browser)
        assert (status, part in text) == (200, True), (path, text[-3000:])
        assert all(address.startswith(f"{base}/") for address in re.findall(r'(?:href|src)="(/[^"]*)"', text)), path


def browser_of(cluster: Cluster) -> OpenerDirector:
    """Return a browser with cookies of its own that accepts the cluster's certificate."""
    context = client_context(local_endpoint(cluster.record, cluster.shell.state).ca)
    return build_opener(HTTPCookieProcessor(CookieJar()), HTTPSHandler(context=context))


def test_the_ui_is_open_to_who_may_see_the_job_while_it_runs_and_afterwards(
    tmp_path: Path, class_archive: Path
) -> None:
    shell = Shell(tmp_path, class_archive.parent)
    cluster, finish = Cluster(shell), tmp_path / "finish"
    try:
        cluster.up(*QUICK)
        shell.write("app.py", SCRIPT)
        job_id = cluster.submit("app.py", *RESTARTS, arguments=(str(finish),))
        address, app_id = until(lambda: cluster.output(job_id).split(), lambda: cluster.story(job_id))
        driver = cluster.wait_for_driver(job_id)
        assert {host for host, _ in listeners(driver)} == {"127.0.0.1"}
        assert answer_of(f"{address}/jobs/", build_opener())[0] == 403, "Spark asks for the key"

        browser = browser_of(cluster)
        link = cluster.ask(lambda client: client.spark_uis.link(job_id)).url
        check_pages(link.rstrip("/"), browser, app_id)
        assert answer_of(f"{link}SQL/execution/?id=0", browser)[0] == 200
        assert answer_of(link, browser_of(cluster))[0] == 403, "the link belongs to the other browser"

        check_command(shell.start("spark-ui", job_id), app_id)

        kill_process(driver)
        cluster.wait_for_driver(job_id, attempt=2)
        check_pages(link.rstrip("/"), browser, app_id)  # the same link: now from the event log
        assert answer_of(f"{link}history/{app_id}/SQL/execution/?id=0", browser)[0] == 200
        assert answer_of(f"{link}api/v1/applications", browser)[0] == 404, "no list of applications"

        finish.touch()
        cluster.wait_for_end(job_id)
        check_command(shell.start("spark-ui", job_id, "--attempt", "1"), app_id)
    finally:
        cluster.close()


CONTEXTS = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

def wait(name):
    while not Path(sys.argv[1], name).exists():
        time.sleep(0.1)

def show(builder):
    spark = builder.getOrCreate()
    spark.range(10).selectExpr("id % 3 AS key").groupBy("key").count().collect()
    print(spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId, flush=True)
    return spark

spark = show(SparkSession.builder)
wait("stop")
spark.stop()
print("stopped", flush=True)
wait("second")
show(SparkSession.builder).stop()
spark = show(SparkSession.builder.config("spark.ui.port", "0"))
wait("finish")
"""


def test_the_ui_follows_a_script_to_the_port_of_its_next_spark_context(tmp_path: Path, class_archive: Path) -> None:
    """The port that the user has chosen is taken, then free, then left to Spark; the link stays the same."""
    shell = Shell(tmp_path, class_archive.parent)
    cluster = Cluster(shell)

    def printed(lines: int) -> list[str]:
        return until(
            lambda: found if len(found := cluster.output(job_id).splitlines()) >= lines else None,
            lambda: cluster.story(job_id),
        )

    try:
        cluster.up(*QUICK)
        shell.write("app.py", CONTEXTS)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            job_id = cluster.submit("app.py", "--conf", f"spark.ui.port={port}", arguments=(str(tmp_path),))
            first, app_id = printed(1)[0].split()
            assert urlsplit(first).port != port
            browser = browser_of(cluster)
            link = cluster.ask(lambda client: client.spark_uis.link(job_id)).url
            check_pages(link.rstrip("/"), browser, app_id)

            (tmp_path / "stop").touch()
            printed(2)
            status, text = answer_of(f"{link}jobs/", browser)
            assert (status, "has no SparkContext now" in text) == (503, True), text
        (tmp_path / "second").touch()
        *_, second, third = printed(4)
        assert urlsplit(second.split()[0]).port == port
        last, app_id = third.split()
        assert urlsplit(last).port != port
        check_pages(link.rstrip("/"), browser, app_id)
        command = shell.start("spark-ui", job_id)
        check_command(command, app_id)
        (tmp_path / "finish").touch()
        cluster.wait_for_end(job_id)
    finally:
        cluster.close()


# Each job writes 4 MB of events: its start and that of its stage have all local properties. A batch has one job. So the
# query's start is in the third file of the event log.
LONG_STREAM = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(spark.sparkContext.applicationId, flush=True)
spark.sparkContext.setLocalProperty("long", "x" * 2_000_000)
for _ in range(7):
    spark.sparkContext.parallelize([0], 1).count()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
query = rates.writeStream.queryName("ticks").trigger(processingTime="500 milliseconds").foreachBatch(
    lambda frame, number: frame.foreach(lambda row: None)
).start()
query.awaitTermination()
"""
SMALLEST_FILES = ("--conf", "spark.eventLog.rolling.maxFileSize=10m")  # Spark accepts none that are smaller


def test_the_history_server_shows_a_long_stream_whose_event_log_was_shortened(
    tmp_path: Path, class_archive: Path
) -> None:
    shell = Shell(tmp_path, class_archive.parent)
    cluster = Cluster(shell)

    def files() -> list[int]:
        """Return the numbers of the files of the event log."""
        log = attempt_directory(shell.state / "storage" / "checkpoints" / job_id, 1)
        return sorted(int(path.name.split("_")[1]) for path in log.glob(f"eventlog_v2_{app_id}/events_*"))

    try:
        cluster.up(*QUICK)
        shell.write("app.py", LONG_STREAM)
        job_id = cluster.submit("app.py", *SMALLEST_FILES, "-D", "restart-strategy.type=none")
        app_id = until(lambda: cluster.output(job_id).strip(), lambda: cluster.story(job_id))
        (lost,) = cluster.wait_for_executors(job_id)
        cluster.wait_for(job_id, lambda job: job.emberkeep.queries, "the query runs")
        assert files()[-1] > 2, "the first file does not have the query's start"
        kill_process(lost.pid)
        replacement = until(
            lambda: next((one for one in cluster.wait_for_executors(job_id) if one.id != lost.id), None),
            lambda: cluster.story(job_id),
        )
        until(lambda: (found := files()) and found[0] > 1, lambda: f"{files()}\n{cluster.story(job_id)}")
        first = files()[0]
        until(lambda: files()[-1] > first + FILES_KEPT, lambda: f"{files()}\n{cluster.story(job_id)}")
        kill_process(cluster.wait_for_driver(job_id))
        cluster.wait_for_end(job_id, JobStatus.FAILED)
        left = files()
        assert left == list(range(left[0], left[-1] + 1))
        assert left[0] > 1

        browser = browser_of(cluster)
        link = cluster.ask(lambda client: client.spark_uis.link(job_id)).url
        check_pages(link.rstrip("/"), browser, app_id)
        status, text = answer_of(f"{link}api/v1/applications/{app_id}/jobs", browser)
        assert status == 200
        jobs = sorted(job["jobId"] for job in json.loads(text))
        gap = sorted(set(range(jobs[-1])) - set(jobs))
        assert (jobs[0], gap) == (0, list(range(gap[0], gap[-1] + 1))), "the beginning and the newest jobs"
        status, text = answer_of(f"{link}StreamingQuery/", browser)
        assert (status, "ticks" in text) == (200, True), "the query has started in the part that is gone"
        status, text = answer_of(f"{link}api/v1/applications/{app_id}/allexecutors", browser)
        active = {one["id"]: one["isActive"] for one in json.loads(text)}
        assert (active[lost.id], active[replacement.id]) == (False, True), "so have the executors"
    finally:
        cluster.close()

"""A secret reaches the driver and the executors of its job, in every attempt, and is found nowhere else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster, environment_of, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.live_files import files_below

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-14")]

VALUE = "marker-hunter2"
SUM = hashlib.sha256(VALUE.encode()).hexdigest()
SCRIPT = """
import hashlib, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

def of(value):
    return hashlib.sha256(value.encode()).hexdigest()

spark = SparkSession.builder.config("spark.ui.enabled", "true").getOrCreate()
context = spark.sparkContext
worker = context.parallelize([1], 1).map(lambda _: of(os.environ["DB_PASS"])).collect()
print("driver", of(os.environ["DB_PASS"]), "JVM", of(spark._jvm.System.getenv("DB_PASS")), *worker, flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
raise ValueError(f"cannot log in with {os.environ['DB_PASS']}")
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up(*QUICK)
        yield cluster
    finally:
        cluster.close()


def surfaces(cluster: Cluster, job_id: JobId) -> dict[str, str]:
    """Return what is shown about the job, by command or path."""
    base = f"/v1/jobs/{job_id}"
    paths = (
        "/v1/jobs",
        "/v1/overview",
        base,
        f"{base}/config",
        f"{base}/exceptions",
        f"{base}/checkpoints",
        "/metrics",
    )
    commands = (("info", job_id), ("info", job_id, "-o", "json"), ("list", "-o", "json"), ("logs", job_id))
    return {
        **{path: cluster.shown(path) for path in (*paths, "/", f"/jobs/{job_id}")},
        **{" ".join(words): str(cluster.shell.run(*words)) for words in commands},
    }


def spark_environment(cluster: Cluster, job_id: JobId) -> str:
    """Return what Spark's own REST API says about the environment of the job's driver."""

    def ask(path: str) -> str:
        page = json.loads(cluster.shown(f"/v1/jobs/{job_id}/spark-ui?path=/api/v1/applications{path}"))
        return base64.b64decode(page["body"]).decode()

    (application,) = json.loads(ask(""))
    return ask(f"/{application['id']}/environment")


def command_lines() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found.append((entry / "cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue  # it has ended
    return found


def stored(directory: Path, but: Path) -> list[Path]:
    found = []
    for path in files_below(directory) - {but}:
        try:
            if VALUE.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue  # deleted meanwhile
    return found


def test_a_secret_reaches_its_job_in_every_attempt_and_nobody_else(cluster: Cluster, tmp_path: Path) -> None:
    secret, go_on = tmp_path / "secret.txt", tmp_path / "go-on"
    secret.write_text(f"{VALUE}\n")
    secret.chmod(0o600)
    cluster.shell.write("app.py", SCRIPT)
    options = (f"--secret=DB_PASS={secret}", "-D", "restart-strategy.type=fixed-delay")
    once = ("-D", "restart-strategy.fixed-delay.attempts=1", "-D", "restart-strategy.fixed-delay.delay=0s")
    job_id = cluster.submit("app.py", *options, *once, arguments=(str(go_on),))
    line = f"driver {SUM} JVM {SUM} {SUM}\n"
    until(lambda: cluster.output(job_id, attempt=1) == line, lambda: cluster.story(job_id))
    kill_process(cluster.wait_for_driver(job_id))
    until(lambda: cluster.output(job_id, attempt=2) == line, lambda: cluster.story(job_id))

    assert [name for name, text in surfaces(cluster, job_id).items() if VALUE in text] == []
    environment = spark_environment(cluster, job_id)
    assert "spark.app.id" in environment
    assert VALUE not in environment
    assert [words for words in command_lines() if VALUE in words] == []
    assert stored(tmp_path, secret) == []
    for daemon in cluster.record.daemons:
        assert VALUE not in str(environment_of(daemon.identity.pid))

    go_on.touch()
    cluster.wait_for_end(job_id, JobStatus.FAILED)
    shown = surfaces(cluster, job_id)
    assert [name for name, text in shown.items() if VALUE in text and not name.startswith("logs")] == []
    assert "cannot log in with ******" in shown[f"info {job_id}"]

"""Airflow's own SparkSubmitOperator, unchanged, with emberkeep-spark-submit as the ``spark-submit`` on its PATH."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.airflow.airflow_site import airflow_python, settings
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

COUNTS = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("rows:", spark.range(int(sys.argv[1])).count(), flush=True)
sys.exit(int(sys.argv[2]))
"""
WAITS = """
import sys, time
from pathlib import Path
Path(sys.argv[1]).touch()
time.sleep(3600)
"""
# What a worker does with one task, in a process of its own. It kills the task once the file ``started`` is there.
TASK = """
import json, os, sys, threading, time
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

task = json.loads(sys.argv[1])
started = task.pop("started", "")
operator = SparkSubmitOperator(task_id="spark", status_poll_interval=1, **task)
if started:
    def kill():
        while not os.path.exists(started):
            time.sleep(0.1)
        operator.on_kill()
    threading.Thread(target=kill, daemon=True).start()
operator.execute({})
print("the task has succeeded")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    shell = Shell(tmp_path_factory.mktemp("operator"), class_archive.parent)
    cluster = Cluster(shell)
    program = shell.directory / "emberkeep-path" / "spark-submit"
    program.parent.mkdir()
    program.symlink_to(Path(sys.executable).with_name("emberkeep-spark-submit"))
    try:
        cluster.up(*QUICK, "--slots", "2")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def start(cluster: Cluster, deploy_mode: str, script: Path, *arguments: str, **task: object) -> subprocess.Popen[str]:
    """Execute an operator whose connection is that of a cluster of Spark's own. Only the PATH leads to Emberkeep."""
    shell = cluster.shell
    home = shell.directory / "airflow"
    home.mkdir(exist_ok=True)
    (home / "task.py").write_text(TASK)
    # With several masters, Airflow asks for the state by `spark-submit --status`; a single one by HTTP.
    master = "spark://old-1:7077,old-2:7077"
    connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": deploy_mode}}
    environment = settings(home) | {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "PATH": f"{shell.directory / 'emberkeep-path'}:/usr/bin:/bin",
        **{name: shell.environment[name] for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", *shell.traces.environment())},
    }
    conf = dict(pair.split("=", 1) for pair in SMALL[5::2])
    words: dict[str, object] = {
        "application": str(script),
        "application_args": list(arguments),
        "conf": conf,
        "driver_memory": "512m",
        "executor_memory": "512m",
        "num_executors": 1,
        "durable": False,
        **task,
    }
    return subprocess.Popen(
        [airflow_python(), str(home / "task.py"), json.dumps(words)],
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def jobs(cluster: Cluster) -> set[JobId]:
    return {job.jid for job in cluster.ask(lambda client: client.jobs())}


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_task_succeeds_if_its_job_does(cluster: Cluster, deploy_mode: str, code: int) -> None:
    before = jobs(cluster)
    task = start(cluster, deploy_mode, cluster.shell.write("counts.py", COUNTS), "42", str(code))
    log, _ = task.communicate(timeout=240)
    assert (task.returncode == 0) is (code == 0), log
    assert ("the task has succeeded" in log) is (code == 0), log
    (job_id,) = jobs(cluster) - before
    assert cluster.job(job_id).state is (JobStatus.FAILED if code else JobStatus.FINISHED)
    if deploy_mode == "client":
        assert "rows: 42" in log
    else:
        assert cluster.output(job_id).splitlines() == ["rows: 42"]


def test_a_task_that_is_killed_kills_its_job(cluster: Cluster, tmp_path: Path) -> None:
    before, started = jobs(cluster), tmp_path / "started"
    script = cluster.shell.write("waits.py", WAITS)
    task = start(cluster, "cluster", script, str(started), started=str(started))
    job_id = until(lambda: next(iter(jobs(cluster) - before), None), "the job is submitted")
    cluster.wait_for_end(job_id, JobStatus.CANCELED)
    log, _ = task.communicate(timeout=240)
    assert task.returncode, log

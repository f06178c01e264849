"""emberkeep-spark-submit in the place of spark-submit, on a real cluster: what tools read, and what becomes of jobs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.cli.spark_submit.submission_id import job_of
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import SMALL, Ended, Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

ENDS = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("rows:", spark.range(int(sys.argv[1])).count(), flush=True)
if sys.argv[2] == "raises":
    raise ValueError("no such column")
sys.exit(int(sys.argv[2]))
"""
WAITS = """
import sys, time
from pathlib import Path
place = Path(sys.argv[1])
place.joinpath("started").touch()
while not place.joinpath("gate").exists():
    time.sleep(0.1)
"""
MASTER = ("--master", "spark://old:7077")
CLUSTER_MODE = (*MASTER, "--deploy-mode", "cluster", *SMALL, "--num-executors", "1")


class Tool:
    """A tool that knows a program of the name ``spark-submit``, and reads what it prints as Airflow's hook does."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.program = shell.directory / "emberkeep-path" / "spark-submit"
        self.program.parent.mkdir()
        self.program.symlink_to(Path(sys.executable).with_name("emberkeep-spark-submit"))

    def call(self, *words: str) -> Ended:
        return self._shell.start(*words, program=self.program).wait()

    def submit(self, script: Path, *arguments: str) -> str:
        """Return the submission id of a job in cluster mode."""
        ended = self.call(*CLUSTER_MODE, str(script), *arguments)
        assert ended.code == 0, ended
        found = re.search(r"driver-[0-9\-]+", ended.err)
        assert found is not None, ended
        return found[0]

    def state(self, submission: str) -> str:
        ended = self.call(*MASTER, "--status", submission)
        assert ended.code == 0, ended
        lines = [line for line in ended.err.splitlines() if "driverState" in line]
        return lines[-1].split(" : ")[1].replace(",", "").replace('"', "").strip()

    def wait_for(self, submission: str, state: str) -> None:
        until(lambda: self.state(submission) == state, lambda: f"{submission} is {self.state(submission)}, not {state}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("spark-submit"), class_archive.parent))
    try:
        cluster.up(*QUICK, "--slots", "2")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def tool(cluster: Cluster) -> Tool:
    return Tool(cluster.shell)


def jobs(cluster: Cluster) -> set[JobId]:
    return {job.jid for job in cluster.ask(lambda client: client.jobs())}


def job_id(submission: str) -> JobId:
    found = job_of(submission)
    assert found is not None
    return found


@pytest.mark.parametrize(("end", "code"), [("0", 0), ("7", 7), ("raises", 1)])
def test_client_mode_shows_the_output_and_ends_as_the_script_does(
    cluster: Cluster, tool: Tool, end: str, code: int
) -> None:
    before = jobs(cluster)
    script = cluster.shell.write("ends.py", ENDS)
    ended = tool.call(*MASTER, *SMALL, "--num-executors", "1", str(script), "42", end)
    assert ended.code == code, ended
    assert ended.out.splitlines() == ["rows: 42"]
    assert ("ValueError: no such column" in ended.err) is (end == "raises"), ended
    (ran,) = jobs(cluster) - before
    assert cluster.job(ran).state is (JobStatus.FAILED if code else JobStatus.FINISHED)


@pytest.mark.parametrize(("end", "state"), [("0", "FINISHED"), ("7", "FAILED")])
def test_cluster_mode_outlives_the_command_and_status_shows_the_end(
    cluster: Cluster, tool: Tool, end: str, state: str
) -> None:
    submission = tool.submit(cluster.shell.write("ends.py", ENDS), "42", end)
    tool.wait_for(submission, state)
    assert cluster.output(job_id(submission)).splitlines() == ["rows: 42"]
    answer = tool.call("--kill", submission)
    assert "has already finished" in answer.err, answer
    assert tool.state(submission) == state


def test_kill_ends_a_job_that_runs(cluster: Cluster, tool: Tool, tmp_path: Path) -> None:
    submission = tool.submit(cluster.shell.write("waits.py", WAITS), str(tmp_path))
    until(tmp_path.joinpath("started").exists, lambda: cluster.story(job_id(submission)))
    tool.wait_for(submission, "RUNNING")
    assert tool.call("--kill", submission).code == 0
    tool.wait_for(submission, "KILLED")
    assert cluster.job(job_id(submission)).state is JobStatus.CANCELED


def test_a_driver_that_is_lost_is_relaunched_under_the_same_submission(
    cluster: Cluster, tool: Tool, tmp_path: Path
) -> None:
    submission = tool.submit(cluster.shell.write("waits.py", WAITS), str(tmp_path))
    driver = cluster.wait_for_driver(job_id(submission))
    kill_process(driver)
    cluster.wait_for_driver(job_id(submission), attempt=2)
    tool.wait_for(submission, "RUNNING")
    tmp_path.joinpath("gate").touch()
    tool.wait_for(submission, "FINISHED")


def test_what_the_cluster_does_not_know_or_cannot_run_is_an_error(cluster: Cluster, tool: Tool) -> None:
    before = jobs(cluster)
    for words in (
        ("--status", "driver-20261118110640-255"),
        ("--kill", "driver-20261118110640-255"),
        ("--class", "org.apache.spark.examples.SparkPi", "examples.jar"),
        ("no-such-script.py",),
    ):
        ended = tool.call(*MASTER, *words)
        assert (ended.code, ended.out) == (1, ""), ended
        assert ended.err
    assert jobs(cluster) == before

"""emberkeep-spark-submit against a JobManager's API, read as tools read spark-submit's output."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from cyclopts import Parameter

from emberkeep.cli.script_arguments import UNSUPPORTED
from emberkeep.cli.spark_submit.application import FLAGS, build_app, main
from emberkeep.client import follow, log_copy
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import DriverInfo
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog, job_info

JOB = "a1" + "0" * 30
Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_copy, "_OVER_PATIENCE", 0.2)
    monkeypatch.setattr(follow, "POLL", 0.02)
    for name in ("MASTER", "DEPLOY_MODE", "SPARK_EXECUTOR_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "app.py").write_text("print('hi')\n")
    monkeypatch.chdir(tmp_path)


def ends(fake: FakeJobManager, state: JobStatus, **own: Any) -> Callable[[str], None]:
    def end(job_id: str) -> None:
        fake.logs[job_id] = [
            FakeLog(1, "driver-stdout", b"result\n", complete=True),
            FakeLog(1, "driver-stderr", b"", complete=True),
        ]
        fake.jobs[job_id] = job_info(job_id, state=state, **own)

    return end


def driver_id(output: str) -> str:
    """As Airflow's hook finds it."""
    found = re.search(r"driver-[0-9\-]+", output)
    assert found is not None
    return found.group(0)


def driver_status(output: str) -> str:
    """As Airflow's hook finds it."""
    lines = [line for line in output.splitlines() if "driverState" in line]
    return lines[-1].split(" : ")[1].replace(",", "").replace('"', "").strip()


@pytest.mark.parametrize(("state", "exit_code"), [(JobStatus.FINISHED, 0), (JobStatus.FAILED, 2)])
def test_client_mode_ends_with_the_script(
    fake: FakeJobManager, capfd: Output, state: JobStatus, exit_code: int
) -> None:
    fake.on_submit = ends(fake, state, exit_code=exit_code)
    words = ["--master", "spark://old:7077", "--deploy-mode", "client", "--name", "first", "--name", "last"]
    assert main([*words, "--conf", "spark.a=1", "--conf", "spark.b=2", "--queue", "q", "app.py", "--name", "own"]) == (
        exit_code
    )
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert "--queue is ignored" in err
    assert "ignoring spark.master=spark://old:7077" in err
    assert "deployMode" not in err
    (submission,) = fake.submissions
    assert (submission.name, submission.arguments) == ("last", ["--name", "own"])
    assert submission.spark_conf == {"spark.a": "1", "spark.b": "2", "spark.app.name": "last"}


def test_cluster_mode_returns_a_submission_id_that_status_and_kill_take(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["--master", "spark://old:7077", "--deploy-mode", "cluster", "--supervise", "app.py"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert '"success" : true' in err
    driver = driver_id(err)
    (job_id,) = fake.jobs
    fake.jobs[job_id] = job_info(job_id, driver=DriverInfo(taskmanager_id="tm-1", pid=1))  # type: ignore[arg-type]
    assert main(["--master", "spark://old:7077", "--status", driver]) == 0
    err = capfd.readouterr().err
    assert driver_status(err) == "RUNNING"
    assert '"workerId" : "tm-1"' in err
    assert main(["--master", "spark://old:7077", "--kill", driver]) == 0
    assert f'"message" : "Kill request for {driver} submitted"' in capfd.readouterr().err
    assert fake.cancels == [(job_id, None)]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (JobStatus.CREATED, "SUBMITTED"),
        (JobStatus.RESTARTING, "RELAUNCHING"),
        (JobStatus.CANCELLING, "RUNNING"),
        (JobStatus.CANCELED, "KILLED"),
        (JobStatus.FAILED, "FAILED"),
        (JobStatus.FINISHED, "FINISHED"),
    ],
)
def test_states_are_those_of_sparks_drivers(fake: FakeJobManager, capfd: Output, state: JobStatus, shown: str) -> None:
    fake.jobs[JOB] = job_info(JOB, name="counts", state=state)
    assert main(["--status", "counts"]) == 0
    assert driver_status(capfd.readouterr().err) == shown


def test_an_unknown_submission_has_no_state(fake: FakeJobManager, capfd: Output) -> None:
    for option in ("--status", "--kill"):
        assert main([option, "driver-20261118110640-255"]) == 1
        err = capfd.readouterr().err
        assert '"submissionId" : "driver-20261118110640-255"' in err
        assert '"success" : false' in err
        assert "driverState" not in err


@pytest.mark.parametrize(("state", "exit_code"), [(JobStatus.FINISHED, 0), (JobStatus.FAILED, 3)])
def test_cluster_mode_on_kubernetes_waits_and_reports_the_exit_code(
    fake: FakeJobManager, capfd: Output, state: JobStatus, exit_code: int
) -> None:
    fake.on_submit = ends(fake, state, exit_code=exit_code)
    assert main(["--master", "k8s://https://c", "--deploy-mode", "cluster", "app.py"]) == exit_code
    found = re.findall(r"\s*[eE]xit code: (\d+)", capfd.readouterr().err)
    assert found[-1] == str(exit_code)


def test_the_master_may_be_the_job_managers_address(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBERKEEP_URL", "http://127.0.0.1:1")
    fake.on_submit = ends(fake, JobStatus.FINISHED)
    assert main(["--master", fake.url, "file://" + str(Path("app.py").absolute())]) == 0
    assert "ignoring" not in capfd.readouterr().err


def test_the_environment_gives_defaults(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_EXECUTOR_MEMORY", "3g")
    monkeypatch.setenv("DEPLOY_MODE", "cluster")
    assert main(["app.py"]) == 0
    assert main(["--executor-memory", "2g", "app.py"]) == 0
    assert [each.spark_conf["spark.executor.memory"] for each in fake.submissions] == ["3g", "2g"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--class", "a.B", "app.py"], "Java and Scala"),
        (["app.jar"], "Java or Scala applications are not supported"),
        (["missing.py"], "missing.py does not exist"),
        (["--foo", "1", "app.py"], "`emberkeep-spark-submit` has no such option"),
        (["-m", "package"], "--module: `emberkeep-spark-submit` has no such option"),
        (["--proxy-user", "x", "app.py"], "--proxy-user is not supported"),
        (["--principal=x", "app.py"], "--principal is not supported"),
        (["--remote", "sc://x", "app.py"], "--remote is not supported"),
        (["--deploy-mode", "claster", "app.py"], "expected client or cluster"),
        (["pyspark-shell"], "no shells"),
        (["--name"], "--name needs a value"),
    ],
)
def test_mistakes_end_with_1_as_in_spark_submit(
    fake: FakeJobManager, capfd: Output, words: list[str], message: str
) -> None:
    assert main(words) == 1
    out, err = capfd.readouterr()
    assert message in err
    assert out == ""
    assert fake.submissions == []


def test_a_cluster_that_cannot_be_reached_ends_with_1(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBERKEEP_URL", "http://127.0.0.1:1")
    assert main(["--status", "driver-20261118110640-255"]) == 1


def test_the_version_is_printed_as_sparks(capfd: Output) -> None:
    assert main(["--version"]) == 0
    assert re.search(r"version 4\.\d+\.\d+", capfd.readouterr().err)


def test_help_and_usage(capfd: Output) -> None:
    assert main(["--help"]) == 0
    assert "--executor-memory" in capfd.readouterr().out
    assert main([]) == 1
    assert main(["--usage-error"]) == 1


def test_every_option_of_spark_submit_is_known() -> None:
    """The names in the class of Spark's launcher that parses the options."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as archive:
        parser = archive.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    options = {match.decode() for match in re.findall(rb"--[a-z][a-z-]+", parser)}
    assert "--executor-memory" in options
    collection = build_app().assemble_argument_collection(default_parameter=Parameter(negative=()))
    names = {name for argument in collection for name in argument.names}
    assert options <= names | set(UNSUPPORTED) | {"--help"}
    flags = {name for argument in collection for name in argument.names if argument.token_count()[0] == 0}
    assert {name for name in flags if name.startswith("-")} | {"--help", "-h"} == FLAGS

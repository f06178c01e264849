"""`emberkeep connect` against a JobManager's API: which job it submits, and which it leaves alone."""

import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from emberkeep.cli.application import main
from emberkeep.jobs.model import JobStatus
from tests.unit.client.fake_job_manager import FakeJobManager, job_info

Output = pytest.CaptureFixture[str]
JOB = "a1" + "0" * 30
TIMEOUT = "spark.connect.session.manager.defaultSessionTimeout"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_server_is_a_job_with_a_token_that_its_attempts_share(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["connect", "up", "--session-timeout", "5m", "--num-executors", "3"]) == 0
    (submission,) = fake.submissions
    assert (submission.name, submission.entry_point.name) == ("connect", "emberkeep.spark.doors.connect_run")
    assert submission.spark_conf["spark.plugins"] == "org.apache.spark.sql.connect.SparkConnectPlugin"
    assert submission.spark_conf[TIMEOUT] == "5m"
    assert len(submission.secrets["CONNECT_TOKEN"]) == 43
    out, err = capfd.readouterr()
    assert out.strip() == submission.jobid
    assert submission.secrets["CONNECT_TOKEN"] not in out + err


@pytest.mark.parametrize("time", ["abc", "", "5 x", "1.5h", "10w"])
def test_a_time_that_spark_cannot_read_is_refused_before_a_job_is_sent(
    fake: FakeJobManager, capfd: Output, time: str
) -> None:
    assert main(["connect", "up", "--session-timeout", time]) == 2
    assert fake.submissions == []
    assert "--session-timeout" in capfd.readouterr().err


@pytest.mark.parametrize("time", ["5m", "90S", "2h", "1500", "-1"])
def test_times_are_those_of_spark(fake: FakeJobManager, time: str) -> None:
    assert main(["connect", "up", "-q", f"--session-timeout={time}"]) == 0
    assert fake.submissions[0].spark_conf[TIMEOUT] == time


def test_the_number_of_executors_follows_the_load(fake: FakeJobManager) -> None:
    assert main(["connect", "up", "-q", "--conf", "spark.dynamicAllocation.maxExecutors=5"]) == 0
    (sent,) = fake.submissions
    assert sent.resources.executors == 0
    assert {key: value for key, value in sent.spark_conf.items() if "ynamic" in key or "shuffle" in key} == {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "5",
        "spark.dynamicAllocation.shuffleTracking.timeout": "60s",
        "spark.sql.connect.shuffleDependency.fileCleanup.enabled": "true",
    }
    assert sent.spark_conf["spark.executor.instances"] == "0"


def test_shuffle_files_keep_no_executor_longer_than_it_may_be_idle(fake: FakeJobManager) -> None:
    idle = "spark.dynamicAllocation.executorIdleTimeout=5s"
    assert main(["connect", "up", "-q", "--conf", idle, "--conf", "spark.dynamicAllocation.enabled=true"]) == 0
    assert fake.submissions[0].spark_conf["spark.dynamicAllocation.shuffleTracking.timeout"] == "5s"


@pytest.mark.parametrize(
    ("words", "executors"),
    [
        (("--num-executors", "3"), 3),
        (("--total-executor-cores", "2"), 2),
        (("--conf", "spark.dynamicAllocation.enabled=false"), 2),
    ],
)
def test_a_number_of_executors_that_the_user_chooses_stays(
    fake: FakeJobManager, words: tuple[str, ...], executors: int
) -> None:
    assert main(["connect", "up", "-q", *words]) == 0
    (sent,) = fake.submissions
    assert sent.resources.executors == executors
    assert sent.spark_conf.get("spark.dynamicAllocation.enabled", "false") == "false"


def test_settings_and_the_token_of_the_user_win(fake: FakeJobManager, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("own token")
    own = ["--conf", f"{TIMEOUT}=1h", "--secret", "CONNECT_TOKEN=own"]
    assert main(["connect", "up", "-q", "--name", "mine", *own]) == 0
    (sent,) = fake.submissions
    assert (sent.name, sent.spark_conf[TIMEOUT], sent.secrets["CONNECT_TOKEN"]) == ("mine", "1h", "own token")


def test_a_server_that_runs_is_not_started_twice(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs[JOB] = job_info(JOB, name="connect", state=JobStatus.RESTARTING)
    assert main(["connect", "up"]) == 0
    assert not fake.submissions
    assert capfd.readouterr().out.strip() == JOB


def test_two_commands_that_see_no_server_start_one(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["connect", "up", "-q"]) == 0
    (server,) = fake.jobs
    seen_later = fake.jobs.pop(server)  # as the second command has asked for the jobs before the first sent its own
    assert main(["connect", "up", "-q"]) == 0
    fake.jobs[server] = seen_later
    assert capfd.readouterr().out.split() == [server, server]


def test_servers_of_a_name_one_after_the_other_are_different_jobs(fake: FakeJobManager) -> None:
    for count in range(1, 4):
        assert main(["connect", "up", "-q"]) == 0
        assert len(fake.submissions) == count
        for job, info in fake.jobs.items():
            fake.jobs[job] = msgspec.structs.replace(info, state=JobStatus.CANCELED)


def test_servers_of_several_namespaces_and_names_are_different_jobs(fake: FakeJobManager) -> None:
    for words in (("--name", "a"), ("--name", "b"), ("--name", "a", "--namespace", "sales")):
        assert main(["connect", "up", "-q", *words]) == 0
    assert len({each.idempotency_key for each in fake.submissions}) == 3


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("words", [("open", "--port", "0"), ("exec", "true"), ("status",), ("down",)])
def test_a_server_that_was_never_started_comes_with_the_command_that_starts_it(
    words: tuple[str, ...], capfd: Output
) -> None:
    assert main(["connect", *words]) != 0
    err = capfd.readouterr().err
    assert "there is no job 'connect'" in err
    assert "hint: `emberkeep connect up` starts a Spark Connect server" in err


@pytest.mark.parametrize("state", [JobStatus.CANCELED, JobStatus.CANCELLING, JobStatus.FAILING])
def test_one_that_has_ended_or_is_ending_is_started_again(fake: FakeJobManager, state: JobStatus) -> None:
    fake.jobs[JOB] = job_info(JOB, name="connect", state=state)
    assert main(["connect", "up", "-q"]) == 0
    assert len(fake.submissions) == 1


def test_a_server_of_another_namespace_is_another_one(fake: FakeJobManager) -> None:
    fake.jobs[JOB] = job_info(JOB, name="connect", namespace="sales")
    for namespace in ("sales", "research"):
        assert main(["connect", "up", "-q", "--namespace", namespace]) == 0
    assert [each.namespace for each in fake.submissions] == ["research"]


@pytest.mark.parametrize(("own", "started"), [("", 1), ("research", 1), ("sales", 0)])
def test_a_server_is_looked_for_in_the_namespace_it_would_get(fake: FakeJobManager, own: str, started: int) -> None:
    fake.caller_namespace = own
    fake.jobs[JOB] = job_info(JOB, name="connect", namespace="sales")
    assert main(["connect", "up", "-q"]) == 0
    assert len(fake.submissions) == started, "code of its clients would run as a job of somebody else"


SHOW = "import os, sys; print(os.environ['SPARK_REMOTE'], *sys.argv[1:], flush=True); sys.exit(7)"


def test_a_command_finds_the_server_in_its_environment(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs[JOB] = job_info(JOB, name="mine")
    assert main(["connect", "exec", "--name", "mine", sys.executable, "-c", SHOW, "--name", "its own"]) == 7
    address, *rest = capfd.readouterr().out.split()
    assert address.startswith("sc://localhost:")
    assert address.endswith("/;token=its%20own%2Ftoken")
    assert rest == ["--name", "its", "own"]
    assert "SPARK_REMOTE" not in os.environ


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_decides_what_a_signal_means(fake: FakeJobManager, number: int, capfd: Output) -> None:
    fake.jobs[JOB] = job_info(JOB, name="connect")
    # As Ctrl-C does, it sends SIGINT to both processes.
    both = f"os.kill(os.getppid(), {int(number)})" + ("; os.kill(os.getpid(), 2)" if number == signal.SIGINT else "")
    script = f"""
import os, signal, sys
def caught(number, frame):
    print("caught", number, flush=True)
    sys.exit(9)
signal.signal({int(number)}, caught)
{both}
signal.pause()
"""
    assert main(["connect", "exec", sys.executable, "-c", script]) == 9
    assert capfd.readouterr().out == f"caught {int(number)}\n"


def test_a_command_that_a_signal_ends_or_that_cannot_run_has_the_exit_code_of_a_shell(
    fake: FakeJobManager, capfd: Output
) -> None:
    fake.jobs[JOB] = job_info(JOB, name="connect")
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert main(["connect", "exec", sys.executable, "-c", script]) == 128 + signal.SIGKILL
    assert main(["connect", "exec", "/no/such/program"]) == 1
    assert "cannot run '/no/such/program': No such file or directory" in capfd.readouterr().err
    assert main(["connect", "exec"]) == 2
    assert "emberkeep connect exec jupyter lab" in capfd.readouterr().err

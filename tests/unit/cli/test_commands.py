"""The command against a JobManager's API: what it prints, where, and its exit code."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.ids import ExecutorId, JobId, TaskManagerId
from emberkeep.cli.application import main
from emberkeep.cli.jobs import log_search
from emberkeep.client import follow, log_copy
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.traces.recovery_trace import Milestone, RecoveryCause
from emberkeep.protocol import rest_logs
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.progress.rest_flows import FlowInfo
from emberkeep.protocol.rest_jobs import (
    AlarmInfo,
    AttemptInfo,
    DriverInfo,
    DynamicAllocationInfo,
    ExceptionInfo,
    ExecutorInfo,
    ReclaimInfo,
    ReservedStandbyInfo,
)
from emberkeep.protocol.rest_recovery import MilestoneInfo, RecoveryInfo
from emberkeep.protocol.rest_task_managers import LocalStateOfJob, Resources, SlotInfo, SlotsKept
from emberkeep.slots.model import ProcessStart
from emberkeep.watchdog.model import AlarmKind
from tests.support.contracts.job_store import batch, savepoint
from tests.unit.client.fake_job_manager import NOW, TOKEN, FakeJobManager, FakeLog, job_info, task_manager_info

A, B = "a1" + "0" * 30, "b2" + "0" * 30

Output = pytest.CaptureFixture[str]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    """A JobManager that the command finds by EMBERKEEP_URL, in a working directory with a script."""
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    state = tmp_path / "state"
    state.mkdir()
    (state / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(state))
    monkeypatch.setattr(log_copy, "_OVER_PATIENCE", 0.2)
    monkeypatch.setattr(follow, "POLL", 0.02)
    (tmp_path / "app.py").write_text("print('hi')\n")
    monkeypatch.chdir(tmp_path)
    with FakeJobManager().serving() as server:
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


def ends(fake: FakeJobManager, state: JobStatus, **own: Any) -> Callable[[str], None]:
    """For ``on_submit``: the job writes a little and has ended."""

    def end(job_id: str) -> None:
        fake.logs[job_id] = [
            FakeLog(1, "driver-stdout", b"result\n", complete=True),
            FakeLog(1, "driver-stderr", b"warning\n", complete=True),
        ]
        fake.jobs[job_id] = job_info(job_id, state=state, **own)

    return end


# --- run and submit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "own", "code"),
    [
        (JobStatus.FINISHED, {"exit_code": 0}, 0),
        (JobStatus.FAILED, {"exit_code": 3, "root_cause": "SystemExit: 3"}, 3),
        (JobStatus.FAILED, {"exit_code": 0, "root_cause": "slots"}, 1),
        (JobStatus.FAILED, {"exit_code": None}, 1),
        (JobStatus.CANCELED, {}, 1),
    ],
)
def test_run_gives_the_scripts_output_and_exit_code(
    fake: FakeJobManager, capfd: Output, state: JobStatus, own: dict[str, Any], code: int
) -> None:
    fake.on_submit = ends(fake, state, **own)
    assert main(["run", "--name", "mine", "app.py", "--name", "its own"]) == code
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert "warning\n" in err
    assert len([line for line in err.splitlines() if state.value in line]) == 1, "the end is said once"
    if own.get("root_cause"):
        assert f"FAILED: {own['root_cause']}" in err
    assert fake.submissions[0].name == "mine"
    assert fake.submissions[0].arguments == ["--name", "its own"]


def test_quiet_run_shows_the_script_only(fake: FakeJobManager, capfd: Output) -> None:
    fake.on_submit = ends(fake, JobStatus.FINISHED)
    assert main(["run", "-q", "app.py"]) == 0
    assert capfd.readouterr() == ("result\n", "warning\n")


def test_submit_prints_the_job_id_alone_on_standard_output(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["submit", "app.py", "1", "-x"]) == 0
    out, err = capfd.readouterr()
    assert out.strip() in fake.jobs
    assert "was accepted by" in err
    assert main(["run", "--detach", "--quiet", "app.py"]) == 0
    out, err = capfd.readouterr()
    assert out.strip() in fake.jobs
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "no script given"),
        (["run", "missing.py"], "missing.py does not exist"),
        (["run", "."], "is a directory"),
        (["run", "--conf", "spark.x", "app.py"], "there is no '='"),
        (["run", "--conf", "", "app.py"], "--conf '': there is no '='"),
        (["run", "-m", ""], "-m '': not a module's name"),
        (["run", "-m", "app.py"], "to run a file leave out -m: app.py"),
        (["run", "--secret", "", "app.py"], "--secret names no variable"),
        (["run", "--from-savepoint", "", "app.py"], "the savepoint's location is empty"),
        (["savepoint", "restore", "", "app.py"], "the savepoint's location is empty"),
        (["savepoint", "show", ""], "the savepoint's location is empty"),
        (["stop", "etl", "--savepoint-path", ""], "the savepoint's location is empty"),
        (["run", "--executor-memory", "1.5g", "app.py"], "use whole numbers: 1536m"),
        (["run", "--bogus", "1", "app.py"], "--bogus"),
        (["run", "--class", "a.B", "app.py"], "Java and Scala"),
        (["run", "-D", "taskmanager.numberOfTaskSlots=1", "app.py"], "a setting of the cluster's processes"),
        (["run", "-D", "rest.prt=1", "app.py"], "did you mean rest.port?"),
        (["run", "--config", "none.yaml", "app.py"], "cannot read the configuration file"),
        (["run", "--url", "ftp://x", "app.py"], "not the URL of a JobManager"),
        (["bogus"], "bogus"),
        (["list", "-o", "xml"], "xml"),
        (["cluster", "up", "--task-managers", "0"], "from 1 to"),
        (["cluster", "up", "--slots", "many"], "many"),
        (["cluster", "up", "--memory", "lots"], "expected a size"),
    ],
)
def test_mistakes_are_usage_errors_without_a_traceback(
    fake: FakeJobManager, capfd: Output, arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert message in err
    assert err.startswith("emberkeep: ")
    assert "Traceback" not in err
    assert out == ""
    assert fake.submissions == []


def test_a_syntax_error_shows_file_line_and_caret(fake: FakeJobManager, capfd: Output) -> None:
    Path("bad.py").write_text("x = (1,\nprint x\n")
    assert main(["run", "bad.py"]) == 2
    err = capfd.readouterr().err
    assert 'File "bad.py", line ' in err
    assert "SyntaxError" in err
    assert "^" in err


@pytest.mark.parametrize("words", ["run --keep-logs app.py", "run --keep-logs --detach app.py"])
def test_logs_cannot_be_kept_of_a_job_of_a_cluster(fake: FakeJobManager, capfd: Output, words: str) -> None:
    fake.on_submit = ends(fake, JobStatus.FINISHED)
    assert main(words.split()) == 0
    assert "--keep-logs has no effect" in capfd.readouterr().err
    assert main([*words.split()[:-1], "--quiet", "app.py"]) == 0
    assert "--keep-logs" not in capfd.readouterr().err


def test_notices_of_spark_submit_options(fake: FakeJobManager, capfd: Output) -> None:
    fake.on_submit = ends(fake, JobStatus.FINISHED)
    assert main(["run", "--master", "local[2]", "--deploy-mode", "client", "--conf", "x=1", "app.py"]) == 0
    err = capfd.readouterr().err
    assert "ignoring spark.master=local[2]" in err
    assert "ignoring spark.submit.deployMode=client" in err
    assert "ignoring x: not a Spark configuration key" in err


def interrupt_when(condition: Callable[[], object], number: signal.Signals) -> threading.Thread:
    """Send this process a signal as soon as ``condition`` holds."""

    def wait() -> None:
        while not condition():
            threading.Event().wait(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_interrupt_cancels_and_waits(fake: FakeJobManager, capfd: Output, number: signal.Signals) -> None:
    fake.on_cancel = lambda job_id, grace: ends(fake, JobStatus.CANCELED)(job_id)
    thread = interrupt_when(lambda: fake.jobs, number)
    assert main(["run", "app.py"]) == 130
    thread.join()
    err = capfd.readouterr().err
    assert "cancelling the job; press Ctrl-C again to kill it" in err
    assert "CANCELED" in err
    assert [grace for _, grace in fake.cancels] == [None]


def test_a_second_interrupt_kills(fake: FakeJobManager, capfd: Output) -> None:
    def cancelled(job_id: str, grace: str | None) -> None:
        if grace == "0":
            ends(fake, JobStatus.CANCELED)(job_id)

    fake.on_cancel = cancelled
    threads = [interrupt_when(lambda: fake.jobs, signal.SIGINT), interrupt_when(lambda: fake.cancels, signal.SIGINT)]
    assert main(["run", "app.py"]) == 130
    for thread in threads:
        thread.join()
    assert "killing the job" in capfd.readouterr().err
    assert [grace for _, grace in fake.cancels] == [None, "0"]


def test_an_interrupted_submit_says_that_the_job_may_have_been_accepted(fake: FakeJobManager, capfd: Output) -> None:
    over = threading.Event()

    def accepted(_: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)  # the reply comes too late

    fake.on_submit = accepted
    with pytest.raises(SystemExit, match="130"):
        main(["submit", "app.py"])
    over.set()
    (job,) = fake.jobs
    assert f"the job may have been accepted: see `emberkeep info {job[:8]}`" in capfd.readouterr().err


# --- looking --------------------------------------------------------------------------------------------------------


def test_list(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["list"]) == 0
    assert "no jobs yet" in capfd.readouterr().err
    fake.jobs = {A: job_info(A, "etl"), B: job_info(B, "x" * 200, JobStatus.FINISHED)}
    assert main(["list"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["JOB", "ID", "NAME", "STATE"]
    assert lines[1].split()[:3] == [A[:8], "etl", "RUNNING"]
    assert "x" * 200 in lines[2]  # nothing is cut off for programs
    assert main(["list", "-o", "json"]) == 0
    assert [job["jid"] for job in json.loads(capfd.readouterr().out)] == [A, B]


@pytest.mark.parametrize("option", ["--url", "--config", "--state-dir"])
@pytest.mark.parametrize("words", ["list {}=", "cancel a1 {}=", "run {}= app.py", "connect up {}="])
def test_an_option_that_names_a_cluster_and_is_empty_selects_no_other_one(
    fake: FakeJobManager, capfd: Output, option: str, words: str
) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    assert main(words.format(option).split()) == 2
    assert f"{option} is empty" in capfd.readouterr().err
    assert not fake.requests


def test_info(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl", waiting="2 of 4 slots are missing")}
    assert main(["info", "etl"]) == 0
    out = capfd.readouterr().out
    assert A in out
    assert "2 of 4 slots are missing" in out
    assert main(["info", "a1", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["job"]["jid"] == A


def test_info_shows_the_alarms_of_the_watchdog(fake: FakeJobManager, capfd: Output) -> None:
    stuck = AlarmInfo(kind=AlarmKind.NO_COMMIT, query="delays", since=NOW, message="no micro-batch was committed")
    storm = AlarmInfo(kind=AlarmKind.RESTARTS, query="", since=NOW, message="restarted more than 5 times")
    fake.jobs = {A: job_info(A, "etl", alarms=[stuck, storm])}
    assert main(["info", "etl"]) == 0
    out = capfd.readouterr().out
    assert "query delays: no micro-batch was committed (no-commit, since " in out
    assert "restarted more than 5 times (restarts, since " in out


def test_a_place_may_be_a_uri_for_commands_as_for_daemons(fake: FakeJobManager, tmp_path: Path, capfd: Output) -> None:
    (tmp_path / "a token").write_text(TOKEN)
    fake.jobs = {A: job_info(A, "etl")}
    assert main(["list", "-D", f"security.token-file=file://{tmp_path}/a%20token"]) == 0
    assert "etl" in capfd.readouterr().out
    assert main(["list", "-D", "security.token-file=file://elsewhere/token"]) == 2
    assert "security.token-file" in capfd.readouterr().err


def test_info_shows_the_flows_of_a_pipeline_and_why_one_failed(fake: FakeJobManager, capfd: Output) -> None:
    done = FlowInfo(name="shop.orders", state="COMPLETED", since=NOW, message="as planned")
    failed = FlowInfo(name="shop.total", state="FAILED", since=NOW, message="no column x")
    fake.jobs = {A: job_info(A, "shop", flows=[done, failed])}
    assert main(["info", "shop"]) == 0
    (flows,) = [part for part in capfd.readouterr().out.split("\n\n") if part.startswith("Flows\n")]
    heading, columns, *rows = (line.split() for line in flows.strip().split("\n"))
    assert (heading, columns) == (["Flows"], ["FLOW", "STATE", "SINCE", "REASON"])
    assert [(row[0], row[1], row[4:]) for row in rows] == [
        ("shop.orders", "COMPLETED", []),
        ("shop.total", "FAILED", ["no", "column", "x"]),
    ]


@pytest.mark.parametrize(
    ("standby", "shown"),
    [
        (ReservedStandbyInfo(taskmanager_id=TaskManagerId("tm-2"), ready=True), "on tm-2, ready"),
        (
            ReservedStandbyInfo(taskmanager_id=TaskManagerId("tm-2"), ready=False, why_not="it is still warming up"),
            "on tm-2, not ready: it is still warming up",
        ),
        (
            ReservedStandbyInfo(taskmanager_id=None, ready=False, why_not="no other node has room"),
            "not ready: no other node has room",
        ),
        (None, ""),
    ],
)
def test_info_shows_the_jobs_reserved_standby(
    fake: FakeJobManager, capfd: Output, standby: ReservedStandbyInfo | None, shown: str
) -> None:
    fake.jobs = {A: job_info(A, "etl", reserved_standby=standby)}
    assert main(["info", "etl"]) == 0
    lines = [line.split(maxsplit=1)[1] for line in capfd.readouterr().out.splitlines() if line.startswith("Standby")]
    assert lines == ([shown] if shown else [])


@pytest.mark.parametrize(("most", "shown"), [(4, "at most 4"), (None, "without a limit")])
def test_info_shows_what_dynamic_allocation_wants(
    fake: FakeJobManager, capfd: Output, most: int | None, shown: str
) -> None:
    scaling = DynamicAllocationInfo(wanted=3, minimum=1, maximum=most, changed=0)
    fake.jobs = {A: job_info(A, "etl", dynamic_allocation=scaling)}
    assert main(["info", "etl"]) == 0
    (line,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith("Dynamic allocation"))
    assert "wants 3 since" in line
    assert line.endswith(f"(at least 1, {shown})")


@pytest.mark.parametrize(("priority", "shown"), [(100, "high (100)"), (-100, "low (-100)"), (7, "7"), (0, None)])
def test_info_shows_the_priority_of_a_job(
    fake: FakeJobManager, capfd: Output, priority: int, shown: str | None
) -> None:
    fake.jobs = {A: job_info(A, "etl", priority=priority)}
    assert main(["info", "etl"]) == 0
    lines = [line.split(maxsplit=1)[1] for line in capfd.readouterr().out.splitlines() if line.startswith("Priority")]
    assert lines == ([] if shown is None else [shown])


@pytest.mark.req("RES-6")
@pytest.mark.parametrize(
    ("ceiling", "told"), [(1, "slots, and keeps 1 executor"), (0, "all its slots to others, and waits")]
)
def test_info_shows_who_gets_what_a_job_gives_back(
    ceiling: int, told: str, fake: FakeJobManager, capfd: Output
) -> None:
    fake.jobs = {A: job_info(A, "etl", reclaim=ReclaimInfo(ceiling=ceiling, reason="job 7 waits"))}
    assert main(["info", "etl"]) == 0
    (line,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith("Gives back"))
    assert line.endswith(f" {told}: job 7 waits")


def test_info_shows_the_beginning_and_the_end_of_what_a_lost_driver_wrote(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    text = "\n".join(["The end of its output:", *(f"line {number}" for number in range(30))])
    fake.exceptions = [
        ExceptionInfo(
            exception_name="lost",
            stacktrace=text,
            message="killed",
            timestamp=NOW,
            task_name="",
            endpoint="",
            task_manager_id="tm-1",
            failure_labels={},
            concurrent_exceptions=[],
        )
    ]
    assert main(["info", "etl"]) == 0
    shown = capfd.readouterr().out.partition("lost: killed\n")[2].splitlines()
    assert shown == [f"    {line}" for line in ("The end of its output:", "…", *(f"line {n}" for n in range(20, 30)))]


@pytest.mark.req("LOC-11")
def test_info_shows_where_copies_of_the_jobs_state_lie(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    assert main(["info", "etl"]) == 0
    assert "Local copies" not in capfd.readouterr().out
    known = task_manager_info("tm-1")
    held = [LocalStateOfJob(jid=JobId(B), files=9, size=9), LocalStateOfJob(jid=JobId(A), files=41, size=3 * 1024**2)]
    extension = msgspec.structs.replace(known.emberkeep, local_state=held)
    fake.task_managers[:] = [msgspec.structs.replace(known, emberkeep=extension)]
    assert main(["info", "etl"]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert [known.id, "41", "3.0", "MiB"] in lines
    assert not [line for line in lines if line[1:2] == ["9"]]


def test_info_shows_where_the_last_driver_ran(fake: FakeJobManager, capfd: Output) -> None:
    def shown(end_time: int, pid: int) -> list[str]:
        attempt = AttemptInfo(
            attempt=2,
            taskmanager_id=TaskManagerId("tm-1"),
            start_time=1,
            end_time=end_time,
            exit_code=None,
            failure_kind=None,
            root_cause="",
        )
        job = job_info(A, "etl", attempts=[attempt])
        driver = DriverInfo(taskmanager_id=TaskManagerId("tm-1"), pid=pid)
        own = msgspec.structs.replace(job.emberkeep, driver=driver)
        fake.jobs = {A: msgspec.structs.replace(job, emberkeep=own)}
        assert main(["info", "etl"]) == 0
        return [line.split(maxsplit=1)[1] for line in capfd.readouterr().out.splitlines() if "Driver:" in line]

    assert shown(end_time=-1, pid=7) == ["pid 7 on tm-1"]
    assert shown(end_time=9, pid=0) == ["last on tm-1"]


def test_kept_slots_of_task_managers_are_named(fake: FakeJobManager, capfd: Output) -> None:
    known = task_manager_info("tm-1")
    kept = [SlotsKept(jid=JobId(A), slots=2)]
    own = msgspec.structs.replace(known.emberkeep, slots_kept=kept)
    fake.task_managers = [msgspec.structs.replace(known, emberkeep=own)]
    free, total = known.free_slots, known.slots_number

    assert main(["taskmanagers", "list"]) == 0
    assert f"{free} of {total}, 2 kept" in capfd.readouterr().out
    assert main(["taskmanagers", "show", known.id]) == 0
    assert f"{total}, {free} free, 2 kept for job {A[:8]}, which restarts" in capfd.readouterr().out


@pytest.mark.req("HA-8")
def test_info_shows_how_the_newest_attempt_started(fake: FakeJobManager, capfd: Output) -> None:
    def shown(**changes: object) -> list[list[str]]:
        recovery = msgspec.structs.replace(RECOVERY, **changes)
        attempt = AttemptInfo(
            attempt=2,
            taskmanager_id=TaskManagerId("tm-1"),
            start_time=1,
            end_time=-1,
            exit_code=None,
            failure_kind=None,
            root_cause="",
            recovery=recovery,
        )
        fake.jobs = {A: job_info(A, "etl", attempts=[attempt])}
        assert main(["info", "etl"]) == 0
        out = capfd.readouterr().out
        return [line.split() for line in out.partition("\nStart of ")[2].splitlines()]

    headline = "attempt 2, the previous one: lost, restart delay 1 s, driver started cold (another heap size)"
    assert shown() == [
        headline.split(),
        ["MILESTONE", "AT", "TOOK"],
        ["detected", "0.00", "s", "0.00", "s"],
        ["placed", "1.25", "s", "1.25", "s"],
        ["context-up", "4.00", "s", "2.75", "s"],
    ]
    later = [MilestoneInfo(milestone=Milestone.REGISTERED.value, after=0)]
    assert shown(milestones=later, cause=None, start=None, why_cold="", delay=0) == [
        ["attempt", "2"],
        ["MILESTONE", "AT", "TOOK"],
        ["registered", "0.00", "s", "0.00", "s"],
        ["What", "happened", "before", "was", "seen", "by", "an", "earlier", "leader", "only"],
    ]
    assert shown(milestones=[]) == []


RECOVERY = RecoveryInfo(
    cause=RecoveryCause.LOST,
    began=1,
    delay=1000,
    start=ProcessStart.COLD,
    why_cold="another heap size",
    milestones=[
        MilestoneInfo(milestone=Milestone.DETECTED.value, after=0),
        MilestoneInfo(milestone=Milestone.PLACED.value, after=1250),
        MilestoneInfo(milestone=Milestone.CONTEXT_UP.value, after=4000),
    ],
)


def test_info_shows_how_much_garbage_executors_collect(fake: FakeJobManager, capfd: Output) -> None:
    job = job_info(A, "etl")
    busy = ExecutorInfo(
        id=ExecutorId("1"),
        taskmanager_id=TaskManagerId("tm-1"),
        host="127.0.0.2",
        state=ProcessState.RUNNING,
        registered=True,
        pid=7,
        cores=2,
        heap_mb=1024,
        away=False,
        task_time=8000,
        gc_time=1000,
    )
    own = msgspec.structs.replace(job.emberkeep, executors=[busy])
    fake.jobs = {A: msgspec.structs.replace(job, emberkeep=own)}
    assert main(["info", "etl"]) == 0
    assert "12.5 %" in capfd.readouterr().out


def test_info_shows_checkpoints_and_savepoints(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    assert main(["info", "etl"]) == 0
    assert "Checkpoints" not in capfd.readouterr().out
    fake.pointers = JobPointers(attempt=1, queries=(batch(41),), savepoints=(savepoint(3),))
    assert main(["info", "etl"]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["query", "1", "41"] in [line[:3] for line in lines]
    assert [line[-1] for line in lines if line[:1] == ["(savepoint)"]] == [savepoint(3).path]


@pytest.mark.parametrize("command", ["info", "logs", "cancel"])
@pytest.mark.parametrize("reference", ["nothing", "f" * 32])
def test_unknown_jobs_are_not_found(fake: FakeJobManager, capfd: Output, command: str, reference: str) -> None:
    assert main([command, reference]) == 4
    assert "there is no" in capfd.readouterr().err


def test_an_ambiguous_job_is_a_usage_error(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl"), B: job_info(B, "etl")}
    assert main(["info", "etl"]) == 2
    assert "matches 2 jobs" in capfd.readouterr().err


def test_logs(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, attempt=2)}
    fake.logs[A] = [
        FakeLog(attempt, f"driver-{kind}", f"{kind} {attempt}\n".encode())
        for attempt in (1, 2)
        for kind in ("stdout", "stderr")
    ]
    assert main(["logs", "a1"]) == 0
    assert capfd.readouterr() == ("stdout 2\n", "stderr 2\n")
    assert main(["logs", "a1", "--attempt", "1"]) == 0
    assert capfd.readouterr() == ("stdout 1\n", "stderr 1\n")
    assert main(["logs", "a1", "--list"]) == 0
    assert capfd.readouterr().out.count("driver-stdout") == 2
    assert main(["logs", "a1", "--list", "-o", "json"]) == 0
    listed = json.loads(capfd.readouterr().out)["logs"]
    assert [(log["attempt"], log["kind"]) for log in listed][:2] == [(1, "driver-stdout"), (1, "driver-stderr")]
    assert main(["logs", "a1", "--list", "-o", "wide"]) == 0
    assert listed[0]["id"] in capfd.readouterr().out
    assert main(["logs", "a1", "-o", "json"]) == 2
    assert "the format of a list" in capfd.readouterr().err
    assert main(["logs", "a1", "--executor", "0"]) == 4
    assert "has no log of executor 0" in capfd.readouterr().err


def test_logs_that_may_be_on_a_task_manager_which_does_not_answer(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}
    fake.unreachable = ["tm-1"]
    assert main(["logs", "a1"]) == 1
    said = capfd.readouterr().err
    assert "task manager tm-1 does not answer" in said
    assert "logs of the driver of any attempt cannot be read now" in said


def test_a_kept_log_that_cannot_be_read_is_said_and_the_others_are_printed(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}
    bad = FakeLog(1, "driver-stderr", problem="segment 7 cannot be read now: Input/output error")
    fake.logs[A] = [FakeLog(1, "driver-stdout", b"out\n"), bad]

    assert main(["logs", "a1", "--list"]) == 0
    listed = capfd.readouterr()
    assert [line.split()[1:4] + line.split()[-1:] for line in listed.out.splitlines()[1:]] == [
        ["driver-stdout", "-", "4", "node"],
        ["driver-stderr", "-", "-", "unreadable"],
    ]
    assert "1-driver-stderr cannot be read: segment 7 cannot be read now: Input/output error" in listed.err

    assert main(["logs", "a1"]) == 0
    printed = capfd.readouterr()
    assert (printed.out, "cannot be read: segment 7" in printed.err) == ("out\n", True)

    fake.logs[A] = [bad]
    assert main(["logs", "a1"]) == 1
    assert "none of these logs can be read" in capfd.readouterr().err


def test_a_kept_log_of_a_newer_release_is_not_said_to_be_readable_later(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}
    fake.logs[A] = [FakeLog(1, "driver-stderr", problem="segment 7 has format 2, which a newer release wrote")]

    assert main(["logs", "a1"]) == 1

    said = capfd.readouterr().err
    assert "format 2" in said
    assert "none of these logs can be read" in said
    assert "now" not in said.split()


@pytest.mark.req("BLOB-20")
@pytest.mark.parametrize(
    ("byte_range", "printed"), [("2-5", "2345"), ("7-", "789"), ("-3", "789"), ("8-100", "89"), ("50-60", "")]
)
def test_ranges_of_logs(fake: FakeJobManager, capfd: Output, byte_range: str, printed: str) -> None:
    fake.jobs = {A: job_info(A)}
    fake.page_size = 3
    fake.logs[A] = [FakeLog(1, "driver-stdout", b"0123456789"), FakeLog(1, "driver-stderr", b"")]
    assert main(["logs", "a1", "--range", byte_range]) == 0
    assert capfd.readouterr() == (printed, "")
    assert main(["logs", "a1", f"--range={byte_range}"]) == 0
    assert capfd.readouterr() == (printed, "")


@pytest.mark.req("BLOB-20")
def test_a_range_without_an_end_is_followed(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}
    fake.logs[A] = [
        FakeLog(1, "driver-stdout", b"0123456789", complete=True),
        FakeLog(1, "driver-stderr", b"abcdefghij", complete=True),
    ]
    assert main(["logs", "a1", "-f", "--range", "6-"]) == 0
    assert capfd.readouterr() == ("6789", "ghij")
    assert main(["logs", "a1", "-f", "--range", "-2"]) == 0
    assert capfd.readouterr() == ("89", "ij")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a1", "--range", "5-2"], "not a byte range"),
        (["a1", "--range", "x"], "not a byte range"),
        (["a1", "--range", "-0"], "not a byte range"),
        (["a1", "-f", "--range", "1-2"], "cannot be followed"),
        ([], "name a job"),
        (["a1", "--jobmanager"], "name a job"),
        (["--jobmanager", "--taskmanager", "tm-1"], "name a job"),
        (["--jobmanager", "--attempt", "1"], "a job's"),
        (["a1", "--name", "x"], "--name goes with"),
        (["a1", "--merged", "--executor", "1"], "--merged is for all"),
        (["a1", "--merged", "--list"], "cannot be combined"),
        (["--jobmanager", "--merged"], "a job's"),
        (["a1", "--grep", "x", "--range", "0-"], "cannot be combined"),
        (["a1", "--level", "warn", "--list"], "cannot be combined"),
        (["a1", "--since", "yesterday"], "not a duration or a time"),
    ],
)
def test_logs_that_cannot_be_meant(fake: FakeJobManager, capfd: Output, arguments: list[str], reason: str) -> None:
    fake.jobs = {A: job_info(A)}
    assert main(["logs", *arguments]) == 2
    assert reason in capfd.readouterr().err


WARNING = b"26/01/31 18:00:00 WARN A: odd\n"
FAILURE = b"26/01/31 18:00:01 ERROR Executor: it failed\njava.lang.Exception\n\tat A\n"


@pytest.mark.parametrize("more", [[], ["--follow"]])
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--grep", "EXCEPTION"], FAILURE.decode()),
        (["--grep", "exception", "--grep", "odd"], ""),
        (["--level", "warn"], (WARNING + FAILURE).decode()),
        (["--level", "fatal"], ""),
        (["--since", "2026-01-31T18:00:01Z"], FAILURE.decode()),
        (["--until", "2026-01-31T18:00:00Z"], WARNING.decode()),
        (["--grep", "--odd--"], ""),
    ],
)
def test_records_of_logs_are_searched(
    fake: FakeJobManager, capfd: Output, arguments: list[str], found: str, more: list[str]
) -> None:
    fake.jobs = {A: job_info(A)}
    fake.logs[A] = [
        FakeLog(1, "driver-stdout", b"printed\n", complete=True),
        FakeLog(1, "driver-stderr", WARNING + FAILURE, complete=True),
    ]

    assert main(["logs", "a1", *arguments, *more]) == 0
    assert capfd.readouterr() == (found, "")


def test_a_search_goes_on_after_parts_without_a_match(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}
    fake.logs[A] = [FakeLog(1, "driver-stderr", WARNING * 200_000 + FAILURE)]

    assert main(["logs", "a1", "--level", "error"]) == 0
    assert capfd.readouterr() == (FAILURE.decode(), "")


def merged(*records: tuple[str, str], follows: str, **changes: Any) -> rest_logs.MergedLogRecords:
    """A reply with these texts of these logs."""
    return rest_logs.MergedLogRecords(
        **{
            "attempt": 2,
            "records": [
                rest_logs.LogRecord(offset=0, size=1, time=None, level="", text=text, log=log) for log, text in records
            ],
            "previous": "",
            "next": follows,
            "at_start": True,
            "at_end": False,
            "complete": False,
            **changes,
        }
    )


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_merged_logs_name_their_writers(
    fake: FakeJobManager, capfd: Output, follow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "_POLL_SECONDS", 0.0)
    fake.jobs = {A: job_info(A)}
    driver, executor = FakeLog(2, "driver-stderr"), FakeLog(2, "executor-stderr", executor="3")
    fake.logs[A] = [driver, executor]
    fake.merged = [
        merged((driver.id, "it starts"), follows="d:1", unreachable=["tm-9"]),
        merged((executor.id, "it failed\n\tat A"), follows="d:1,3:2", at_end=True, unreachable=["tm-9"]),
        merged(follows="d:1,3:2", at_end=True, complete=True),
    ]

    assert main(["logs", "a1", "--merged", "--level", "warn", *follow]) == 0

    out, err = capfd.readouterr()
    assert out == "driver       | it starts\nexecutor 3   | it failed\nexecutor 3   | \tat A\n"
    assert err.count("tm-9") == 1
    asked = [{"level": "warn", "after": ""}, {"level": "warn", "after": "d:1", "attempt": "2"}]
    assert fake.merged_queries[:2] == asked
    assert len(fake.merged_queries) == (3 if follow else 2)


@pytest.mark.req("BLOB-20")
def test_logs_of_daemons(fake: FakeJobManager, capfd: Output) -> None:
    fake.daemon_logs = {
        "": [
            FakeLog(0, "jobmanager", b"now", name="jobmanager.log"),
            FakeLog(0, "jobmanager", b"before", name="jobmanager.log.1", complete=True),
        ],
        "tm-1": [FakeLog(0, "taskmanager", b"out", name="taskmanager.out")],
        "tm-2": [FakeLog(0, "taskmanager", name="a.log"), FakeLog(0, "taskmanager", name="b.log")],
        "tm-3": [],
    }
    assert main(["logs", "--jobmanager"]) == 0
    assert capfd.readouterr().out == "now"
    assert main(["logs", "--jobmanager", "--name", "jobmanager.log.1", "--range", "1-2"]) == 0
    assert capfd.readouterr().out == "ef"
    assert main(["logs", "--jobmanager", "--list"]) == 0
    assert "jobmanager.log.1" in capfd.readouterr().out
    assert main(["logs", "--taskmanager", "tm-2", "--list", "-o", "yaml"]) == 0
    assert "- name: b.log\n" in capfd.readouterr().out
    assert main(["logs", "--taskmanager", "tm-1"]) == 0
    assert capfd.readouterr().out == "out"
    assert main(["logs", "--taskmanager", "tm-2"]) == 0
    assert "b.log" in capfd.readouterr().out
    assert main(["logs", "--taskmanager", "tm-3"]) == 4
    assert main(["logs", "--taskmanager", "tm-1", "--name", "x"]) == 4


def test_logs_are_followed_to_the_end(fake: FakeJobManager, capfd: Output) -> None:
    ends(fake, JobStatus.FINISHED)(A)
    assert main(["logs", "-f", "a1"]) == 0
    assert capfd.readouterr() == ("result\n", "warning\n")
    assert main(["logs", "-f", "a1", "--attempt", "7"]) == 4
    assert "the job has ended with attempt 1" in capfd.readouterr().err


def test_cancel(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A), B: job_info(B, state=JobStatus.FINISHED)}
    assert main(["cancel", "a1", "--no-wait"]) == 0
    fake.on_cancel = lambda job_id, grace: ends(fake, JobStatus.CANCELED)(job_id)
    assert main(["cancel", "a1", "--kill"]) == 0
    assert "CANCELED after " in capfd.readouterr().err
    assert [grace for _, grace in fake.cancels] == [None, "0"]
    assert main(["cancel", B]) == 1
    assert "has ended: it is FINISHED" in capfd.readouterr().err


def test_task_managers(fake: FakeJobManager, capfd: Output) -> None:
    fake.task_managers = [task_manager_info("tm-1")]
    for arguments in (["taskmanagers"], ["taskmanagers", "list"], ["taskmanagers", "show", "tm-1"]):
        assert main(arguments) == 0
        assert "tm-1" in capfd.readouterr().out
        assert main([*arguments, "-o", "json"]) == 0
        assert "tm-1" in json.dumps(json.loads(capfd.readouterr().out))
    assert main(["taskmanagers", "show", "tm-2"]) == 4


@pytest.mark.req("RES-1")
def test_a_task_manager_shows_its_gpus(fake: FakeJobManager, capfd: Output) -> None:
    total, free = (Resources(cpu_cores=1, task_heap_memory=1, extended_resources={"gpu": n}) for n in (2.0, 0.0))
    held = SlotInfo(job_id=JobId(A), attempt=1, index=0, resource=total, addresses={"gpu": ["0", "1"]})
    shown = msgspec.structs.replace(
        task_manager_info("tm-1"), total_resource=total, free_resource=free, allocated_slots=[held]
    )
    fake.task_managers = [shown]
    assert main(["taskmanagers", "show", "tm-1"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"gpu:? +2, 0 free", out)
    assert re.search(r"RESOURCES\n.*gpu 0, 1", out)


def test_status_of_a_cluster_elsewhere(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    fake.task_managers = [task_manager_info("tm-1")]
    assert main(["cluster", "status"]) == 0
    out = capfd.readouterr().out
    assert "tm-1" in out
    assert "etl" in out
    assert main(["cluster", "status", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["overview"]["taskmanagers"] == 1


# --- no cluster, no permission --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["info", "x"],
        ["logs", "x"],
        ["cancel", "x"],
        ["submit", "app.py"],
        ["taskmanagers"],
        ["cluster", "status"],
    ],
)
def test_without_a_cluster_it_is_unreachable(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.delenv("EMBERKEEP_URL")
    assert main(arguments) == 3
    err = capfd.readouterr().err
    assert "no cluster found" in err
    assert "hint: start one with `emberkeep cluster up`" in err


def test_a_wrong_token_fails(fake: FakeJobManager, capfd: Output, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("w" * 40)
    assert main(["list", "-D", f"security.token-file={tmp_path / 'wrong'}"]) == 1
    assert "token" in capfd.readouterr().err


def test_debugging_shows_where(fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBERKEEP_DEBUG", "1")
    assert main(["run", "missing.py"]) == 2
    assert "Traceback" in capfd.readouterr().err


# --- configuration, versions, help ----------------------------------------------------------------------------------


def test_config(fake: FakeJobManager, capfd: Output, tmp_path: Path) -> None:
    file = tmp_path / "state" / "config.yaml"
    file.write_text("heartbeat.interval: 3s\n")
    assert main(["config", "show", "--origin"]) == 0
    out = capfd.readouterr().out
    assert f"{file}:1" in out
    assert "environment EMBERKEEP_STATE_DIR" in out
    assert main(["config", "show", "--all", "-o", "json"]) == 0
    rows = {row["key"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["heartbeat.interval"]["value"] == "3s"
    assert rows["rest.port"]["origin"] == "default"
    assert main(["config", "check"]) == 0
    assert "no errors" in capfd.readouterr().err
    file.write_text("heartbeat.intervall: 3s\n")
    assert main(["config", "check"]) == 2
    err = capfd.readouterr().err
    assert f"{file}:1" in err
    assert "did you mean heartbeat.interval?" in err


def test_a_place_that_would_differ_from_process_to_process_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    assert main(["config", "check", "-D", "high-availability.storageDir=shared"]) == 2
    assert "high-availability.storageDir: 'shared' is relative" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("security.run-as=team-a=", "security.run-as has 'team-a=', which is neither NAMESPACE=USER nor USER"),
        ("security.run-as=team-a=a,team-a=b", "security.run-as names two users for 'team-a'"),
        ("security.oidc.roles=platform=king", "security.oidc.roles: 'platform=king' does not have the form"),
        ("notifications.webhook.events=job-fialed", "notifications.webhook.events: there is no event 'job-fialed'"),
    ],
)
def test_a_list_that_a_daemon_would_refuse_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output, setting: str, problem: str
) -> None:
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    assert main(["config", "check", "-D", setting]) == 2
    assert problem in capfd.readouterr().err


def test_version(capfd: Output) -> None:
    assert main(["version"]) == 0
    assert "emberkeep 0." in capfd.readouterr().out
    assert main(["--version"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        *([], ["run"], ["submit"], ["list"], ["info"], ["logs"], ["cancel"], ["taskmanagers"], ["cluster"]),
        *(["cluster", "up"], ["cluster", "down"], ["cluster", "status"], ["config"], ["config", "show"]),
        *(["config", "check"], ["jobmanager"], ["taskmanager"], ["version"]),
    ],
)
def test_every_command_explains_itself(capfd: Output, command: list[str]) -> None:
    assert main([*command, "--help"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith(f"Usage: {' '.join(['emberkeep', *command])}")
    assert err == ""
    assert "Default: ()" not in out

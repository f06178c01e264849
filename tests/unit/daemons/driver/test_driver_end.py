"""A driver's outcome reaches its cluster also where the disk of the working directory does not take it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from emberkeep.adapters.processes.table import MARKER_VARIABLE
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.driver import attempt as daemon
from emberkeep.daemons.driver import end as driver_end
from emberkeep.daemons.driver.spark.bridge import SparkBridge
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, DriverSpec, read_outcome
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.spark.script.runner import OutcomeKind, ScriptOutcome
from tests.unit.formats.golden_samples import DRIVER_SPEC

pytestmark = pytest.mark.req("SAFE-9")

SECONDS = 60.0
SUCCESS = AttemptOutcome(exit_code=0)
LOST = AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message="planted")


class JobMaster:
    """A link to a JobManager that acknowledges the report with this number and those after it."""

    lease = None

    def __init__(self, acknowledges: int = 1) -> None:
        self.acknowledges = acknowledges
        self.reported: list[AttemptOutcome] = []
        self.before_report: Callable[[], None] = lambda: None
        self.stopped = False

    def report(self, outcome: AttemptOutcome) -> bool:
        self.before_report()
        self.reported.append(outcome)
        return len(self.reported) >= self.acknowledges

    def stop(self) -> None:
        self.stopped = True


class OutputOnFullDisk:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_end, "PAUSE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def same_handler() -> Iterator[None]:
    """A driver that ends ignores SIGTERM. This process does not."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def driver_in(directory: Path, job_master: JobMaster, monkeypatch: pytest.MonkeyPatch) -> daemon._Driver:
    monkeypatch.setattr(daemon, "JobMasterThread", lambda *_: job_master)
    return daemon._Driver(spec_in(directory), Configuration())


def spec_in(directory: Path) -> DriverSpec:
    return msgspec.structs.replace(DRIVER_SPEC, directory=str(directory), logs=str(directory), files=(), options={})


def test_an_exception_whose_text_is_not_utf_8_is_the_jobs_root_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "ValueError: cannot parse caf\udce9.csv \ud83d"
    failed = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message=text, traceback=f"Traceback …\n{text}\n")
    told = r"ValueError: cannot parse caf\udce9.csv \ud83d"
    wanted = msgspec.structs.replace(failed, message=told, traceback=f"Traceback …\n{told}\n")
    job_master = JobMaster()
    driver = driver_in(tmp_path, job_master, monkeypatch)
    assert driver._end(failed) == 1
    assert job_master.reported == [wanted]
    assert read_outcome(tmp_path / OUTCOME_FILE) == wanted
    assert job_master.stopped
    (tmp_path / OUTCOME_FILE).unlink()
    driver_in(tmp_path, job_master, monkeypatch)._failed(failed)
    assert read_outcome(tmp_path / OUTCOME_FILE) == wanted


def test_a_failure_after_the_attempts_end_does_not_replace_its_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task manager may be away for too long while the driver waits for a leader: the job must not run again."""
    job_master = JobMaster(acknowledges=sys.maxsize)
    driver = driver_in(tmp_path, job_master, monkeypatch)
    job_master.before_report = lambda: driver._failed(LOST)
    assert driver._end(SUCCESS) == 0
    assert read_outcome(tmp_path / OUTCOME_FILE) == SUCCESS


def test_a_failure_names_the_memory_of_the_drivers_group_and_a_success_does_not() -> None:
    assert driver_end.explained(SUCCESS, "too much") == SUCCESS
    assert driver_end.explained(LOST, "") == LOST
    assert driver_end.explained(LOST, "too much").message == "planted; too much"
    assert driver_end.reason_of_own_group({}) == ""
    assert driver_end.reason_of_own_group({MARKER_VARIABLE: "driver-x@1"}) == "", "it is in no such group"


def test_a_success_that_no_disk_takes_is_reported_until_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_master = JobMaster(acknowledges=3)
    driver = driver_in(tmp_path / "away", job_master, monkeypatch)
    assert driver._end(SUCCESS) == 0
    assert job_master.reported == [SUCCESS] * 3
    assert job_master.stopped


def test_a_success_that_nobody_hears_is_written_once_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_master = JobMaster(acknowledges=sys.maxsize)
    driver = driver_in(tmp_path / "away", job_master, monkeypatch)

    def room_after_three() -> None:
        if len(job_master.reported) == 3:
            (tmp_path / "away").mkdir()

    job_master.before_report = room_after_three
    assert driver._end(SUCCESS) == 0
    assert read_outcome(tmp_path / "away" / OUTCOME_FILE) == SUCCESS


def test_an_outcome_on_disk_waits_for_nobody(tmp_path: Path) -> None:
    job_master = JobMaster(acknowledges=sys.maxsize)
    driver_end.hand_over(spec_in(tmp_path), SUCCESS, job_master)
    assert job_master.reported == [SUCCESS]
    assert read_outcome(tmp_path / OUTCOME_FILE) == SUCCESS


def test_a_loss_is_reported_once(tmp_path: Path) -> None:
    job_master = JobMaster(acknowledges=sys.maxsize)
    driver_end.hand_over(spec_in(tmp_path / "away"), LOST, job_master)
    assert job_master.reported == [LOST]


def test_output_that_no_disk_takes_does_not_hide_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job_master = JobMaster()
    driver = driver_in(tmp_path, job_master, monkeypatch)
    monkeypatch.setattr(sys, "stderr", OutputOnFullDisk())
    assert driver._end(SUCCESS) == 0
    assert job_master.reported == [SUCCESS]


@pytest.mark.anyio
async def test_a_script_is_told_to_end_although_the_reason_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(Exception):
        pass

    def told(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGTERM)
        raise Ended

    driver = driver_in(tmp_path / "away", JobMaster(), monkeypatch)
    bridge: SparkBridge = driver._bridge
    monkeypatch.setattr(os, "kill", told)
    with pytest.raises(Ended):
        await bridge.fail("planted")
    assert driver._failure is not None


class Runtime:
    """A driver's runtime whose JVM runs."""

    def __init__(self) -> None:
        self.procedures = self
        self.jvm_ended = False
        self.functions: Any = None
        self.stop_spark: Any = None

    def ended_on_request(self) -> bool:
        return False

    def jvm_died(self) -> None:
        return None

    def end_jvm(self) -> None:
        self.jvm_ended = True


@pytest.mark.parametrize("code", [0, 3])
def test_a_script_that_exits_at_once_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It would count as lost otherwise, and run again."""
    job_master, runtime = JobMaster(), cast(Any, Runtime())
    job_master.before_report = lambda: threading.Thread(target=driver._end, args=(LOST,), daemon=True).start()
    driver = driver_in(tmp_path, job_master, monkeypatch)
    driver._leave(code, runtime)
    assert runtime.jvm_ended, "nothing is written after the outcome"
    (outcome,) = job_master.reported
    assert read_outcome(tmp_path / OUTCOME_FILE) == outcome
    assert (outcome.exit_code, outcome.kind) == (code, FailureKind.SCRIPT if code else None)
    assert outcome.message == ("the script exited with code 3" if code else "")


def test_a_script_that_exits_at_once_because_it_was_told_to_end_has_not_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose handler ends with ``sys.exit(0)``: the task manager may stop, and the next attempt continues."""
    job_master = JobMaster()
    driver = driver_in(tmp_path, job_master, monkeypatch)
    driver._told()
    driver._leave(0, cast(Any, Runtime()))
    assert [outcome.kind for outcome in job_master.reported] == [FailureKind.LOST]


def cannot() -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("outcome", [SUCCESS, AttemptOutcome(exit_code=3, kind=FailureKind.SCRIPT, message="planted")])
def test_what_fails_after_the_script_does_not_hide_its_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: AttemptOutcome
) -> None:
    """An attempt without an outcome counts as lost, and the script would run again."""
    driver, runtime = driver_in(tmp_path, JobMaster(), monkeypatch), Runtime()
    runtime.functions, runtime.stop_spark = SimpleNamespace(close=cannot), cannot
    script = ScriptOutcome(outcome.exit_code, OutcomeKind.EXITED, message=outcome.message)
    assert driver._outcome_after(script, cast(Any, runtime)) == outcome
    assert runtime.jvm_ended


def test_queries_that_cannot_be_stopped_at_the_end_of_the_script_fail_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, runtime = driver_in(tmp_path, JobMaster(), monkeypatch), Runtime()
    runtime.functions = SimpleNamespace(sources_ended=cannot)
    ended = driver._end_sources(ScriptOutcome(0, OutcomeKind.FINISHED), cast(Any, runtime))
    assert (ended.exit_code, ended.exception_type, ended.message) == (1, "RuntimeError", "can't start new thread")


@pytest.mark.parametrize("when", ["at the beginning", "at the report", "at the end"])
def test_a_handler_that_exits_while_the_attempt_ends_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """As a watchdog does whose time runs out just then. It runs in the thread that it interrupts."""
    job_master, left = JobMaster(), threading.Event()
    driver = driver_in(tmp_path, job_master, monkeypatch)

    def exits() -> None:
        driver._leave(7, cast(Any, Runtime()))
        left.set()

    def end() -> None:
        if when == "at the beginning":
            with driver._handing_over:
                exits()
            return  # the process has ended
        driver._end(SUCCESS)
        if when == "at the end":
            exits()

    if when == "at the report":
        job_master.before_report = exits
    threading.Thread(target=end, daemon=True).start()
    assert left.wait(SECONDS)
    outcome = read_outcome(tmp_path / OUTCOME_FILE)
    assert outcome is not None
    assert outcome.exit_code == (7 if when == "at the beginning" else 0), "what is being handed over stays"


TOLD_AT_THE_END = """
import os, signal, sys
from pathlib import Path
from emberkeep.base.configuration.values import Configuration
from emberkeep.spark.script.cancellation import raise_on_sigterm
from emberkeep.spark.script.immediate_exit import immediate_exits
from tests.unit.daemons.driver.test_driver_end import JobMaster, Runtime, daemon, spec_in

class Told(Runtime):
    def end_jvm(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

daemon.JobMasterThread = lambda *_: JobMaster()
driver = daemon._Driver(spec_in(Path(sys.argv[1])), Configuration())
raise_on_sigterm(driver._told)
with immediate_exits(lambda code: driver._leave(code, Told())):
    os._exit(0)
"""


def test_a_sigterm_while_a_script_leaves_does_not_take_its_outcome(tmp_path: Path) -> None:
    """An attempt without an outcome counts as lost, and the finished script would run again."""
    command = [sys.executable, "-c", TOLD_AT_THE_END, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert read_outcome(tmp_path / OUTCOME_FILE) == SUCCESS

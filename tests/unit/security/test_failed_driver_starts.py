"""A driver that cannot start reports why, whatever the error is, so that it is not started for ever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.driver import attempt as daemon
from emberkeep.daemons.driver import link, settings
from emberkeep.daemons.driver.link import JobMasterThread
from emberkeep.daemons.driver.spark.bridge import SparkBridge
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, read_outcome
from emberkeep.jobs.model import AttemptOutcome, EntryPoint, EntryPointKind, FailureKind
from tests.unit.formats.golden_samples import DRIVER_SPEC
from tests.unit.spark.jvm.test_configuration import SETTINGS

pytestmark = [pytest.mark.req("SEC-4"), pytest.mark.req("SAFE-22")]


class Broken:
    """A JobMaster's thread that ends before a JobManager has accepted the attempt."""

    lease = None

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def start(self) -> None:
        raise self._error

    def report(self, outcome: AttemptOutcome) -> bool:
        return False

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("error", [ImportError("planted"), LookupError("planted"), SystemExit("planted")])
def test_any_error_before_the_script_is_a_lasting_failure_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    monkeypatch.setattr(daemon, "JobMasterThread", lambda *_: Broken(error))
    monkeypatch.setattr(daemon, "raise_on_sigterm", lambda _: None)
    monkeypatch.setattr(daemon, "raise_no_more", lambda: None)
    spec = msgspec.structs.replace(DRIVER_SPEC, directory=str(tmp_path), logs=str(tmp_path), files=(), options={})
    assert daemon._Driver(spec, Configuration()).run() == 1
    outcome = read_outcome(tmp_path / OUTCOME_FILE)
    assert outcome is not None
    assert (outcome.kind, outcome.lasting) == (FailureKind.SETUP, True)
    assert outcome.message == f"the driver cannot start: {type(error).__name__}: planted"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("defaults", "kind", "said"),
    [
        ("", FailureKind.SCRIPT, "execution.openlineage is on, but the job has no openlineage-spark jar"),
        ("spark.x=\\u12", FailureKind.SETUP, "{home}/conf/spark-defaults.conf: "),
    ],
    ids=["of the job", "of the node"],
)
def test_settings_that_cannot_be_used_fail_the_job_if_they_are_its_own_and_the_start_if_they_are_the_node_s(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    defaults: str,
    kind: FailureKind,
    said: str,
) -> None:
    class Idle(Broken):
        def start(self) -> None:
            """The JobManager has accepted the attempt."""

    monkeypatch.setattr(daemon, "JobMasterThread", lambda *_: Idle(LookupError()))
    monkeypatch.setattr(daemon, "raise_on_sigterm", lambda _: None)
    monkeypatch.setattr(daemon, "raise_no_more", lambda: None)
    monkeypatch.setattr(settings, "find_java", lambda _: SETTINGS.java)
    monkeypatch.setattr(settings, "find_class_archive", lambda *_: None)
    (tmp_path / "jars").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    module = EntryPoint(kind=EntryPointKind.MODULE, name="app")
    graph = msgspec.structs.replace(DRIVER_SPEC.graph, entry_point=module)
    spec = msgspec.structs.replace(
        DRIVER_SPEC, graph=graph, directory=str(tmp_path), logs=str(tmp_path), files=(), options={}, checkpoint_root=""
    )
    lineage = Configuration().with_texts({"execution.openlineage": "true"}, "job")
    assert daemon._Driver(spec, lineage).run() == 1
    outcome = read_outcome(tmp_path / OUTCOME_FILE)
    assert outcome is not None
    assert (outcome.kind, outcome.lasting) == (kind, True), "another start there meets the same settings"
    assert outcome.message.startswith(said.format(home=tmp_path))
    assert outcome.message in capsys.readouterr().err


SIGNALLED = """
import os, signal, sys
from pathlib import Path
import msgspec
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.daemons.driver import attempt
from tests.unit.formats.golden_samples import DRIVER_SPEC

class Ending:
    lease = None
    def __init__(self, *_): pass
    def start(self): raise {error}("planted")
    def report(self, outcome): return True
    def stop(self): os.kill(os.getpid(), signal.SIGTERM)  # the task manager has learnt of the end, and ends the process

attempt.JobMasterThread = Ending
spec = msgspec.structs.replace(DRIVER_SPEC, directory=sys.argv[1], logs=sys.argv[1], files=(), options={{}})
sys.exit(attempt._Driver(spec, Configuration()).run())
"""


@pytest.mark.parametrize("error", ["Fatal", "LookupError"])
def test_a_signal_that_follows_the_report_does_not_hide_the_reason(tmp_path: Path, error: str) -> None:
    command = [sys.executable, "-c", SIGNALLED.format(error=error), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "Cancelled" not in done.stderr
    assert "planted" in done.stderr
    outcome = read_outcome(tmp_path / OUTCOME_FILE)
    assert outcome is not None
    assert outcome.message.endswith("planted")


@pytest.mark.parametrize("error", [LookupError("unknown encoding: idna"), SystemExit(3)])
def test_a_job_master_that_crashes_before_its_registration_does_not_kill_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async def crash(self: JobMasterThread) -> None:
        await asyncio.sleep(0)
        raise error

    monkeypatch.setattr(JobMasterThread, "_serve", crash)
    configuration = Configuration()
    thread = JobMasterThread(DRIVER_SPEC, configuration, SparkBridge(configuration, lambda _: None))
    with pytest.raises(type(error)):
        thread.start()
    assert not thread.report(AttemptOutcome(exit_code=1))
    thread.stop()
    thread._loop.close()


def test_a_job_master_that_crashes_later_leaves_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def crash(self: JobMasterThread) -> None:
        raise LookupError("planted")

    left: list[AttemptOutcome] = []
    ended: list[bool] = []
    monkeypatch.setattr(JobMasterThread, "_serve", crash)
    monkeypatch.setattr(link, "end_session", lambda: ended.append(bool(left)))
    configuration = Configuration()
    thread = JobMasterThread(DRIVER_SPEC, configuration, SparkBridge(configuration, left.append))
    thread._registered.set()
    with pytest.raises(LookupError):
        thread._run()
    thread._loop.close()
    assert ended == [True], "the reason is stored before the process ends"
    (outcome,) = left
    assert (outcome.kind, outcome.message) == (FailureKind.LOST, "the driver's JobMaster crashed: LookupError: planted")


def test_a_driver_that_is_told_to_end_before_its_script_hands_over_an_outcome(tmp_path: Path) -> None:
    told = SIGNALLED.replace('raise {error}("planted")', "os.kill(os.getpid(), signal.SIGTERM)").format()
    command = [sys.executable, "-c", told, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    outcome = read_outcome(tmp_path / OUTCOME_FILE)
    assert outcome is not None
    assert (outcome.kind, outcome.lasting) == (FailureKind.LOST, False)
    assert outcome.message == "the driver was ended by SIGTERM before its script began"
    assert done.returncode == outcome.exit_code

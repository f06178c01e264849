"""``emberkeep stop``, ``savepoint …`` and ``--from-savepoint`` against a JobManager's API."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from emberkeep.base.errors import RetryLater, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.cli.application import main
from emberkeep.cli.wording import procedure_text, status_text
from emberkeep.client.calls.savepoints import SavepointCalls
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.periodic.model import PeriodicSettings, PeriodicView
from emberkeep.lifecycle.manifest import MANIFEST_NAME, Manifest, decode_manifest
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress
from emberkeep.rest.jobs.shapes import job_details_info
from tests.unit.cli.scripted_gateway import Scripted
from tests.unit.rest.fake_gateway import NOW_MS, job_id, job_view
from tests.unit.rest.jobs.test_savepoints import flip, make

Output = pytest.CaptureFixture[str]
JOB = job_id(1)


def manifest_of(savepoint: Path) -> Manifest:
    return decode_manifest((savepoint / MANIFEST_NAME).read_bytes(), str(savepoint))


def told(phase: ProcedurePhase, **more: Any) -> dict[str, Any]:
    return {"progress": ProcedureProgress(trigger_id="", phase=phase, **more)}


def test_stop_tells_what_it_does_and_ends_with_the_path(gateway: Scripted, capfd: Output) -> None:
    gateway.ends_as = JobStatus.FINISHED
    gateway.steps = [
        {"waiting": "contact with the driver of attempt 2"},
        told(ProcedurePhase.FINISHING_BATCHES, detail="finishing batch 41 of query flights"),
        told(ProcedurePhase.DRAINING, detail="draining query flights"),
        told(ProcedurePhase.COPYING, files_done=212, files_total=300, bytes_done=12 * 1024**2),
        {"savepoint": "/s/savepoint-1", "waiting": "the end of its script"},
        {"is_over": True, "savepoint": "/s/savepoint-1"},
    ]
    assert main(["stop", "flights", "--drain", "--savepoint-path", "/s"]) == 0
    captured = capfd.readouterr()
    assert captured.out == "/s/savepoint-1\n"
    said = [line.removeprefix("emberkeep: ") for line in captured.err.splitlines()]
    assert said[:6] == [
        f"job {JOB[:8]}: the savepoint goes below /s",
        "waiting for contact with the driver of attempt 2",
        "finishing batch 41 of query flights",
        "draining query flights",
        "copying 212 of 300 files, 12 MiB",
        "the savepoint /s/savepoint-1 is complete; waiting for the end of its script",
    ]
    assert said[6].startswith("the job is FINISHED after ")
    assert said[7] == "start from it with `emberkeep savepoint restore /s/savepoint-1 app.py`"
    assert said[8] == "the cluster does not tell the job's options and arguments: the command needs them, too"
    ((request,),) = [[view.request] for view in gateway.procedures.values()]
    assert request is not None
    assert (request.procedure, request.target_directory) == (Procedure.DRAIN, "/s")


def test_what_a_drain_has_left_is_told_last(gateway: Scripted, capfd: Output) -> None:
    gateway.ends_as = JobStatus.FINISHED
    left = told(ProcedurePhase.COMPLETED, warning="timers of query 'one' were still setting timers")
    gateway.steps = [{"is_over": True, "savepoint": "/s/1", **left}]
    assert main(["stop", "flights", "--drain", "--savepoint-path", "/s"]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "JobManager does not find" not in line]
    assert said[-1] == "emberkeep: warning: timers of query 'one' were still setting timers"


def test_a_savepoint_that_only_the_drivers_machine_has_is_warned_of(
    gateway: Scripted, tmp_path: Path, capfd: Output
) -> None:
    seen = make(tmp_path / "savepoint-00000001-0123456789ab")
    for path, warned in ((str(seen), False), ("/on/another/machine", True)):
        gateway.steps = [{"is_over": True, "savepoint": path}]
        assert main(["savepoint", "create", "flights"]) == 0
        captured = capfd.readouterr()
        assert captured.out == f"{path}\n"
        assert ("the JobManager does not find" in captured.err) == warned


def test_the_command_that_starts_from_a_new_savepoint_is_the_one_that_show_prints(
    gateway: Scripted, tmp_path: Path, capfd: Output
) -> None:
    path = str(make(tmp_path / "savepoint-00000001-0123456789ab"))
    assert main(["savepoint", "show", path]) == 0
    shown = capfd.readouterr().out.partition("\nStart the job from it\n")[2].strip()
    assert shown.startswith(f"emberkeep savepoint restore {path} --conf ")
    gateway.steps = [{"is_over": True, "savepoint": path}]
    assert main(["savepoint", "create", "flights"]) == 0
    assert f"emberkeep: start from it with `{shown}`\n" in capfd.readouterr().err


def test_a_command_that_the_jobmanager_did_not_tell_is_said_to_be_incomplete(
    gateway: Scripted, tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(_: SavepointCalls, path: str) -> NoReturn:
        raise Unavailable("no JobManager answers")

    path = str(make(tmp_path / "savepoint-00000001-0123456789ab"))
    monkeypatch.setattr(SavepointCalls, "manifest", unanswered)
    gateway.ends_as = JobStatus.FINISHED
    gateway.steps = [{"is_over": True, "savepoint": path}]
    assert main(["stop", "flights"]) == 0
    captured = capfd.readouterr()
    assert captured.out == f"{path}\n"
    assert captured.err.endswith(
        f"emberkeep: start from it with `emberkeep savepoint restore {path} app.py`\n"
        "emberkeep: the cluster does not tell the job's options and arguments: the command needs them, too; "
        f"`emberkeep savepoint show {path}` prints the whole command once the JobManager answers "
        "(no JobManager answers)\n"
    )


def test_a_failure_is_told_and_the_exit_code_is_1(gateway: Scripted, capfd: Output) -> None:
    gateway.steps = [{"is_over": True, "failure": "/s: no space left"}]
    assert main(["stop", "flights"]) == 1
    captured = capfd.readouterr()
    assert (captured.out, "no savepoint was made: /s: no space left" in captured.err) == ("", True)


def test_a_script_that_fails_after_the_stop_is_told_with_the_path(gateway: Scripted, capfd: Output) -> None:
    gateway.ends_as = JobStatus.FAILED
    gateway.steps = [{"is_over": True, "savepoint": "/s/1"}]
    assert main(["stop", "flights"]) == 1
    captured = capfd.readouterr()
    assert captured.out == "/s/1\n"
    assert "the job is FAILED" in captured.err


def test_a_savepoint_of_a_job_that_runs_on(gateway: Scripted, capfd: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    gateway.steps = [{"is_over": True, "savepoint": "/usr/s/1"}]
    assert main(["savepoint", "create", JOB, "--savepoint-path", "s", "-o", "json"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["operation"] == {"location": "/usr/s/1"}
    assert "the job continues" in captured.err
    (view,) = gateway.procedures.values()
    assert view.request is not None
    assert (view.request.procedure, view.request.target_directory) == (Procedure.SAVEPOINT, "/usr/s")


def test_a_stop_waits_for_a_periodic_savepoint(gateway: Scripted, capfd: Output) -> None:
    gateway.periodic = True
    assert main(["stop", "flights", "--detach"]) == 0
    assert capfd.readouterr().err.count("a periodic savepoint is being made; waiting for its end") == 1
    assert len(gateway.procedures) == 1


def test_detached_it_prints_the_trigger_id(gateway: Scripted, capfd: Output) -> None:
    assert main(["stop", "flights", "--detach"]) == 0
    ((_, trigger_id),) = gateway.procedures
    assert capfd.readouterr().out == f"{trigger_id}\n"


def test_a_job_manager_that_is_away_is_waited_for(gateway: Scripted, capfd: Output) -> None:
    away = {"error": RetryLater("it does not lead")}
    gateway.steps = [away] * 12 + [{"is_over": True, "savepoint": "/s/1"}]
    assert main(["savepoint", "create", "flights"]) == 0
    assert "is durable and continues" in capfd.readouterr().err


def test_ctrl_c_ends_the_waiting_only(gateway: Scripted, capfd: Output) -> None:
    gateway.steps = [told(ProcedurePhase.FINISHING_BATCHES)]

    def interrupt() -> None:
        assert gateway.looked.wait(240)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(SystemExit, match="130"):
        main(["stop", "flights"])
    interrupting.join()
    assert "continues: `emberkeep info" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["stop"], ["savepoint", "create"]])
def test_how_long_running_batches_may_take(gateway: Scripted, capfd: Output, command: list[str]) -> None:
    assert main([*command, "flights", "--timeout", "1 min", "--detach"]) == 0
    (view,) = gateway.procedures.values()
    assert view.request is not None
    assert view.request.deadline_ms - view.request.requested_ms == 60_000
    assert main([*command, "flights", "--timeout", "soon"]) == 2
    assert main([*command, "flights", "--timeout", "0s"]) == 2
    assert "--timeout: 'soon' is not valid: expected a duration" in capfd.readouterr().err


def test_refusals_have_their_exit_codes(gateway: Scripted, capfd: Output) -> None:
    assert main(["stop", "nobody"]) == 4
    assert main(["stop", "etl"]) == 1
    assert "has ended: it is FINISHED" in capfd.readouterr().err
    assert main(["savepoint", "show", "/nowhere"]) == 4
    assert main(["stop"]) == 2


def test_savepoints_are_listed_shown_checked_and_deleted(
    gateway: Scripted, tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["savepoint", "list"]) == 0
    assert "no savepoints yet" in capfd.readouterr().err
    root = make(tmp_path / "savepoint-00000001-0123456789ab")
    pointer = SavepointPointer(path=str(root), manifest_sha256="ab" * 32, created_ms=NOW_MS)
    gateway.change(JOB, pointers=JobPointers(savepoints=(pointer,)))
    view = PeriodicView(
        settings=PeriodicSettings(interval=3600.0, retained=4, max_age=0.0),
        due_ms=NOW_MS,
        newest_ms=0,
        kept=0,
        retiring=0,
        failures=1,
        problem="the newest try has failed: no space",
    )
    gateway.change(JOB, periodic=view)
    assert main(["info", "flights"]) == 0
    assert re.search(
        "every 1h.*; none made yet; next due .*; 0 kept; the newest try has failed", capfd.readouterr().out
    )
    for job, count in (([], 1), (["flights"], 1), (["etl"], 0)):
        assert main(["savepoint", "list", *job, "-o", "json"]) == 0
        assert len(json.loads(capfd.readouterr().out)) == count
    assert main(["savepoint", "list"]) == 0
    assert str(root) in capfd.readouterr().out
    assert main(["savepoint", "show", str(root)]) == 0
    shown = capfd.readouterr().out
    assert "SUSPEND, attempt 2" in shown
    assert "2 files, 7 B" in shown
    assert f"\nStart the job from it\nemberkeep savepoint restore {root} --conf " in shown
    capfd.readouterr()
    monkeypatch.setattr("emberkeep.client.savepoint_verification._PIECE_FILES", 1)
    assert main(["savepoint", "verify", str(root)]) == 0
    first, second = manifest_of(root).files
    said = capfd.readouterr().err.splitlines()
    assert said[0] == f"emberkeep: read 1 of 2 files, {first.size} B of {first.size + second.size} B"
    assert re.fullmatch(r"emberkeep: 2 files, 7 B: all unchanged, after \d+\.\ds", said[1])
    flip(root / "functions/0")
    assert main(["savepoint", "verify", str(root)]) == 1
    assert "functions/0 was changed" in capfd.readouterr().out
    (root / "notes").write_bytes(b"x")
    assert main(["savepoint", "dispose", str(root)]) == 0
    told = capfd.readouterr().err
    assert f"{root} is deleted after " in told
    assert "not deleted, as the savepoint's manifest does not name it: notes" in told
    assert [path.name for path in root.iterdir()] == ["notes"]
    assert main(["savepoint", "dispose", str(root)]) == 4, "there is none any more"


def test_a_savepoint_of_a_job_that_is_not_seen_is_shown_without_its_options(
    gateway: Scripted, tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "savepoint-00000001-0123456789ab")
    monkeypatch.setattr(gateway, "views", {})
    assert main(["savepoint", "show", str(root)]) == 0
    captured = capfd.readouterr()
    assert f"\nStart the job from it\nemberkeep savepoint restore {root} app.py\n" in captured.out
    assert "the cluster does not tell the job's options and arguments: the command needs them, too" in captured.err


def test_restore_checks_the_savepoint_and_submits(
    gateway: Scripted, tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("pass\n")
    root = make(tmp_path / "savepoint-00000001-0123456789ab")
    assert main(["savepoint", "restore", str(root), "--num-executors", "1", "app.py", "--num-executors", "7"]) == 0
    captured = capfd.readouterr()
    graph = gateway.views[JobId(captured.out.strip())].graph
    assert graph is not None
    assert "all unchanged, after " in captured.err
    assert (graph.savepoint, graph.resources.executors, graph.arguments) == (str(root), 1, ("--num-executors", "7"))
    assert graph.name == manifest_of(root).job_name, "it is called as the job was"

    monkeypatch.setattr(gateway, "views", {})
    flip(root / "functions/0")
    assert main(["savepoint", "restore", str(root), "app.py"]) == 1
    captured = capfd.readouterr()
    assert "functions/0 was changed" in captured.out
    assert "nothing was submitted" in captured.err
    assert not gateway.views
    assert main(["savepoint", "restore", "/nowhere", "app.py"]) == 4
    assert main(["savepoint", "restore", str(root)]) == 2
    assert main(["savepoint", "restore"]) == 2


@pytest.mark.req("END-5")
def test_restore_names_what_is_damaged_in_a_manifest(
    gateway: Scripted, tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("pass\n")
    root = make(tmp_path / "savepoint-00000001-0123456789ab")
    flip(root / MANIFEST_NAME)
    assert main(["savepoint", "verify", str(root)]) == 1
    problem = capfd.readouterr().out
    assert main(["savepoint", "restore", str(root), "app.py"]) == 1
    captured = capfd.readouterr()
    assert captured.out == problem
    assert "nothing was submitted" in captured.err


def test_restore_warns_of_the_job_that_still_runs_and_of_a_newer_savepoint(
    gateway: Scripted, tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("pass\n")
    root = make(tmp_path / "savepoint-00000001-0123456789ab")
    made_of = manifest_of(root)
    newer = SavepointPointer(
        path="/s/newer", manifest_sha256="ab" * 32, created_ms=made_of.created_ms + 1, trigger_id="c" * 32
    )
    gateway.views.pop(made_of.job_id, None)
    gateway.add(job_view(made_of.job_id, "flights", pointers=JobPointers(savepoints=(newer,))))
    assert main(["savepoint", "restore", "-q", str(root), "app.py"]) == 0
    said = capfd.readouterr().err
    assert "is RUNNING: both jobs will read the same input" in said
    assert "/s/newer" in said


def test_a_job_is_submitted_with_the_savepoint_that_it_starts_from(
    gateway: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("pass\n")
    for given, sent in (("s/1", str(tmp_path / "s/1")), ("s3://bucket/s/1", "s3://bucket/s/1")):
        assert main(["submit", "--from-savepoint", given, "--name", given, "app.py"]) == 0
        (graph,) = [view.graph for view in gateway.views.values() if view.name == given]
        assert graph is not None
        assert graph.savepoint == sent


def test_words_for_what_is_under_way(gateway: Scripted) -> None:
    view = job_view(JOB, "flights")
    running = ProcedureView(job_id=JOB, trigger_id="a" * 32, request=None, **told(ProcedurePhase.COPYING))
    shown = job_details_info(msgspec.structs.replace(view, procedure=running), NOW_MS)
    assert shown.emberkeep.procedure is not None
    assert procedure_text(shown.emberkeep.procedure) == "copying the state"
    assert "copying" not in status_text(shown, with_rates=False), "what was asked is not known"

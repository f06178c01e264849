"""``emberkeep apply``, ``diff`` and ``get`` against a JobManager's API."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.cli.application import main
from emberkeep.client.calls.upgrades import UpgradeCalls
from emberkeep.client.declarations.apply import Applying
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.lifecycle.model import ProcedurePhase, ProcedureProgress
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo, UpgradeRequest
from tests.unit.cli.scripted_gateway import Scripted
from tests.unit.rest.fake_gateway import NOW_MS

Output = pytest.CaptureFixture[str]
WATCHED = {"phase": UpgradePhase.WATCHING, "savepoint": "/s/savepoint-1"}
DONE = {"phase": UpgradePhase.DONE, "savepoint": "/s/savepoint-1"}
STOPPED: list[dict[str, Any]] = [
    {"progress": ProcedureProgress(trigger_id="", phase=ProcedurePhase.COPYING)},
    {"is_over": True, "savepoint": "/s/savepoint-1"},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "declared"
    folder.mkdir()
    (folder / "app.py").write_text("print('hi')\n")
    declare(folder)
    monkeypatch.chdir(folder)
    return folder


def declare(folder: Path, **more: Any) -> None:
    document = {"version": 1, "name": "counts", "script": "app.py", **more}
    (folder / "job.yaml").write_bytes(msgspec.yaml.encode(document))


def apply(*words: str) -> int:
    return main(["apply", "job.yaml", *words])


def applied(gateway: Scripted, capfd: Output, *words: str) -> JobView:
    """Apply, and return the job whose id is printed."""
    assert apply(*words) == 0, capfd.readouterr().err
    return gateway.views[JobId(capfd.readouterr().out.strip())]


def runs(gateway: Scripted, view: JobView) -> None:
    """The newest job of the gateway runs; later ones are submitted later."""
    gateway.change(view.job_id, status=JobStatus.RUNNING, submitted_ms=NOW_MS - 1000 + len(gateway.views))


def named(gateway: Scripted) -> list[JobView]:
    return [view for view in gateway.views.values() if view.name == "counts"]


def test_the_same_file_twice_starts_one_job(gateway: Scripted, capfd: Output) -> None:
    first = applied(gateway, capfd)
    runs(gateway, first)
    assert main(["diff", "job.yaml"]) == 0
    assert "nothing: " in capfd.readouterr().err
    assert applied(gateway, capfd).job_id == first.job_id
    assert len(named(gateway)) == 1


def test_a_changed_stream_is_stopped_and_starts_from_its_savepoint(
    gateway: Scripted, capfd: Output, folder: Path
) -> None:
    first = applied(gateway, capfd)
    runs(gateway, first)
    declare(folder, conf={"spark.a": 1})
    for words, code in ((["diff"], 1), (["apply", "--dry-run"], 0)):
        assert main([*words, "job.yaml"]) == code
        out, err = capfd.readouterr()
        assert out == ""
        assert "+ conf.spark.a: 1" in err
        assert "upgrade: upgrade job" in err
    assert gateway.wishes == []
    gateway.upgrade_steps = [WATCHED, DONE]
    second = applied(gateway, capfd)
    assert second.job_id != first.job_id
    assert second.graph is not None
    assert second.graph.savepoint == "/s/savepoint-1"
    assert gateway.views[first.job_id].status is JobStatus.FINISHED
    assert gateway.procedures == {}
    ((_, wish),) = gateway.wishes
    assert (wish.batches, wish.within_ms, wish.restarts) == (3, 600_000, 2)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_read_what_would_change(gateway: Scripted, capfd: Output, folder: Path, output: str) -> None:
    def read(code: int) -> Any:
        assert main(["diff", "job.yaml", "-o", output]) == code
        out, err = capfd.readouterr()
        assert err == ""
        return msgspec.json.decode(out) if output == "json" else msgspec.yaml.decode(out)

    reason = "no job of this name exists"
    assert read(1) == {"step": "start", "job-id": "", "reason": reason, "savepoint": "", "changes": []}
    first = applied(gateway, capfd)
    runs(gateway, first)
    assert (read(0)["step"], read(0)["changes"]) == ("nothing", [])

    declare(folder, conf={"spark.a": 1})
    found = read(1)
    assert (found["step"], found["job-id"]) == ("upgrade", first.job_id)
    assert found["changes"] == [{"field": "conf.spark.a", "before": None, "after": "1"}]


def test_the_policy_of_upgrades_and_the_schedule_of_savepoints(gateway: Scripted, capfd: Output, folder: Path) -> None:
    first = applied(gateway, capfd)
    runs(gateway, first)
    policy = {"batches": 5, "within": "2h", "restarts": 0}
    declare(folder, upgrade=policy)
    assert main(["diff", "job.yaml"]) == 0, "a job is not replaced for its policy"
    declare(folder, upgrade=policy, savepoints={"interval": "6h", "retained": 4, "max-age": "7d"})
    gateway.upgrade_steps = [DONE]
    second = applied(gateway, capfd)
    ((_, wish),) = gateway.wishes
    assert (wish.batches, wish.within_ms, wish.restarts) == (5, 7_200_000, 0)
    assert second.graph is not None
    assert second.graph.options == {
        "execution.savepoint.interval": "6h",
        "execution.savepoint.retained": "4",
        "execution.savepoint.max-age": "7d",
    }
    assert main(["get", "counts"]) == 0
    out = capfd.readouterr().out
    (folder / "job.yaml").write_text(out)
    assert main(["diff", "job.yaml"]) == 0


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"phase": UpgradePhase.UNCHANGED, "reason": "the disk is full"}, "continues as before: the disk is full"),
        ({"phase": UpgradePhase.RETURNED, "reason": "no such column"}, "the old code was started again"),
    ],
)
def test_an_upgrade_that_is_not_good_fails_and_the_next_apply_tries_again(
    gateway: Scripted, capfd: Output, folder: Path, step: dict[str, Any], text: str
) -> None:
    runs(gateway, applied(gateway, capfd))
    declare(folder, arguments=["x"])
    gateway.upgrade_steps = [step]
    assert apply() == 1
    err = capfd.readouterr().err
    assert "the declared job does not run" in err
    assert text in err
    job_id, wish = gateway.wishes[0]
    found = gateway.views[job_id].upgrade
    assert found is not None
    for each in (job_id, wish.back.job_id):
        if each in gateway.views:
            ended = msgspec.structs.replace(found.upgrade, **step)
            gateway.change(each, upgrade=msgspec.structs.replace(found, upgrade=ended))
    gateway.upgrade_steps = [DONE]
    assert apply() == 0
    assert len({wish.upgrade_id for _, wish in gateway.wishes}) == 2


def test_an_upgrade_that_goes_on_is_followed_after_a_crash(gateway: Scripted, capfd: Output, folder: Path) -> None:
    first = applied(gateway, capfd)
    runs(gateway, first)
    declare(folder, arguments=["x"])
    assert main(["upgrade", "counts", "--detach", "app.py", "other"]) == 0
    capfd.readouterr()
    assert main(["diff", "job.yaml"]) == 1
    assert "follow: an upgrade of job" in capfd.readouterr().err
    gateway.upgrade_steps = [WATCHED, DONE]
    assert apply() == 1, "it is another client's, with other arguments and without a declaration"
    assert "another client has started job" in capfd.readouterr().err
    assert len(gateway.wishes) == 1


def test_a_job_of_the_name_that_no_file_declared_is_left_alone(gateway: Scripted, capfd: Output, folder: Path) -> None:
    assert main(["submit", "--name", "counts", "app.py"]) == 0
    capfd.readouterr()
    assert apply() == 1
    assert "was not declared by a file" in capfd.readouterr().err
    assert main(["get", "counts"]) == 4
    assert len(named(gateway)) == 1


class Crash(EmberkeepError):
    """The client is gone."""


@pytest.mark.parametrize("lost", ["before the request", "after the request"])
def test_a_client_that_crashes_at_the_upgrade_never_makes_two_jobs(
    gateway: Scripted, capfd: Output, folder: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    first = applied(gateway, capfd)
    runs(gateway, first)
    declare(folder, arguments=["x"])
    begin = UpgradeCalls.begin

    async def crash(calls: UpgradeCalls, job_id: JobId, request: UpgradeRequest) -> UpgradeInfo:
        if lost == "after the request":
            await begin(calls, job_id, request)
        raise Crash("gone")

    monkeypatch.setattr(UpgradeCalls, "begin", crash)
    assert apply() == 1
    monkeypatch.setattr(UpgradeCalls, "begin", begin)
    capfd.readouterr()
    gateway.upgrade_steps = [WATCHED, DONE]
    second = applied(gateway, capfd)
    assert second.graph is not None
    assert second.graph.savepoint == "/s/savepoint-1"
    assert {view.job_id for view in named(gateway)} == {first.job_id, second.job_id}
    assert len(gateway.wishes) == 1


def test_a_client_that_crashes_while_the_job_stops_is_continued(
    gateway: Scripted, capfd: Output, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = applied(gateway, capfd)
    runs(gateway, first)
    assert main(["stop", "--detach", first.job_id]) == 0
    declare(folder, arguments=["x"])
    gateway.steps, gateway.ends_as = list(STOPPED), JobStatus.FINISHED
    capfd.readouterr()
    second = applied(gateway, capfd)
    assert second.graph is not None
    assert (second.graph.savepoint, second.graph.arguments) == ("/s/savepoint-1", ("x",))
    assert len(gateway.procedures) == 1


def test_two_clients_at_once_start_one_job(
    gateway: Scripted, capfd: Output, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other client submits between this one's plan and its submission."""
    carry_out = Applying.carry_out

    async def late(applying: Applying, plan: Any, display: Any) -> JobId:
        monkeypatch.setattr(Applying, "carry_out", carry_out)
        declare(folder, arguments=["other"])
        command = [sys.executable, "-m", "emberkeep.cli.main", "apply", "job.yaml"]
        assert await asyncio.to_thread(subprocess.call, command, cwd=folder) == 0
        return await carry_out(applying, plan, display)

    monkeypatch.setattr(Applying, "carry_out", late)
    assert apply() == 1
    assert "another client has started job" in capfd.readouterr().err
    (only,) = named(gateway)
    assert only.graph is not None
    assert only.graph.arguments == ("other",)


@pytest.mark.parametrize("words", [[], ["-o", "yaml"], ["--output", "json"]])
def test_get_prints_what_apply_takes(gateway: Scripted, capfd: Output, folder: Path, words: list[str]) -> None:
    declare(folder, conf={"spark.a": True}, arguments=["x"], options={"restart-strategy.type": "none"})
    first = applied(gateway, capfd)
    runs(gateway, first)
    assert main(["get", "counts", *words]) == 0
    out = capfd.readouterr().out
    if "json" in words:
        assert json.loads(out)["name"] == "counts"
    else:
        assert out.startswith(f"# Paths begin at {folder}\n")
    (folder / "job.yaml").write_text(out)
    assert applied(gateway, capfd).job_id == first.job_id


def test_the_file_may_be_given_as_kubectl_takes_it(gateway: Scripted, capfd: Output) -> None:
    assert main(["apply", "-f", "job.yaml"]) == 0
    runs(gateway, gateway.views[JobId(capfd.readouterr().out.strip())])
    assert main(["diff", "--file", "job.yaml"]) == 0
    assert main(["apply", "job.yaml", "-f", "job.yaml"]) == 2, "the file is named twice"


def test_a_failed_job_starts_again_when_asked(gateway: Scripted, capfd: Output) -> None:
    first = applied(gateway, capfd)
    gateway.change(first.job_id, status=JobStatus.FAILED, submitted_ms=NOW_MS - 5000)
    assert apply() == 1
    assert "--again starts it without a savepoint" in capfd.readouterr().err
    second = applied(gateway, capfd, "--again")
    assert second.job_id != first.job_id


def test_the_schema_and_a_missing_file(capfd: Output) -> None:
    assert main(["apply", "--schema"]) == 0
    assert json.loads(capfd.readouterr().out)["title"] == "A declared job of Emberkeep"
    for command in ("apply", "diff"):
        assert main([command]) == 2
        assert "FILE" in capfd.readouterr().err

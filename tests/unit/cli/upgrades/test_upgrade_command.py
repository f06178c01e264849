"""``emberkeep upgrade`` against a JobManager's API: what it sends, what it tells, and its exit codes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.cli.application import main
from emberkeep.client import log_copy
from emberkeep.client.calls.upgrades import UpgradeCalls
from emberkeep.client.errors import Unanswered
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission import uploaded_request
from emberkeep.client.submission.blob_upload import UploadProgress
from emberkeep.client.submission.preparation import PreparedJob, upload
from emberkeep.client.upgrades import upgrading
from emberkeep.jobmanager.views.upgrades import UpgradeView
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo, UpgradeRequest
from tests.unit.cli.scripted_gateway import Scripted
from tests.unit.rest.fake_gateway import job_id

Output = pytest.CaptureFixture[str]
OLD = job_id(1)
WATCHING = {"phase": UpgradePhase.WATCHING, "savepoint": "/s/1"}
STARTING = {"phase": UpgradePhase.STARTING, "savepoint": "/s/1"}


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "app.py"
    path.write_text("print('new')\n")
    return str(path)


def said(capfd: Output) -> list[str]:
    return [line.removeprefix("emberkeep: ") for line in capfd.readouterr().err.splitlines()]


def test_a_good_upgrade_tells_each_phase_and_prints_the_new_job(gateway: Scripted, script: str, capfd: Output) -> None:
    gateway.upgrade_steps = [{}, STARTING, WATCHING, {**WATCHING, "phase": UpgradePhase.DONE}]
    words = ["upgrade", "flights", "--batches", "5", "--within=90s", "--restarts", "0", script, "--batches", "its own"]
    assert main(words) == 0
    ((job, wish),) = gateway.wishes
    assert (job, wish.new.name, wish.new.arguments) == (OLD, "flights", ("--batches", "its own"))
    assert (wish.batches, wish.within_ms, wish.restarts) == (5, 90_000, 0)
    captured = capfd.readouterr()
    assert captured.out == f"{wish.new.job_id}\n"
    lines = [line.removeprefix("emberkeep: ") for line in captured.err.splitlines()]
    new = wish.new.job_id[:8]
    assert lines[-4:] == [
        f"stopping job {OLD[:8]} with a savepoint",
        f"job {OLD[:8]} has stopped; starting the new code as job {new} from /s/1",
        f"watching job {new}, which runs the new code: none of its queries has reported yet",
        f"the new code runs as job {new}",
    ]


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (UpgradePhase.RETURNED, "the old code was started again"),
        (UpgradePhase.UNCHANGED, "continues as before"),
        (UpgradePhase.FAILED, "emberkeep savepoint restore /s/1 app.py"),
    ],
)
def test_an_upgrade_that_is_not_good_has_exit_code_1(
    gateway: Scripted, script: str, capfd: Output, phase: UpgradePhase, text: str
) -> None:
    gateway.upgrade_steps = [{"phase": phase, "reason": "no such column", "savepoint": "/s/1"}]
    assert main(["upgrade", "flights", script]) == 1
    shown = "\n".join(said(capfd))
    assert "the upgrade has failed" in shown
    assert "no such column" in shown
    assert text in shown


def test_a_detached_upgrade_prints_its_id(gateway: Scripted, script: str, capfd: Output) -> None:
    assert main(["upgrade", "flights", "--detach", script]) == 0
    ((_, wish),) = gateway.wishes
    assert capfd.readouterr().out == f"{wish.upgrade_id}\n"


def test_a_job_alone_shows_and_follows_its_newest_upgrade(gateway: Scripted, script: str, capfd: Output) -> None:
    assert main(["upgrade", "flights", "--detach", script]) == 0
    gateway.upgrade_steps = [STARTING]
    assert main(["upgrade", "flights", "--detach", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out.partition("\n")[2])["phase"] == "STARTING"
    gateway.upgrade_steps = [WATCHING, {**WATCHING, "phase": UpgradePhase.DONE}]
    assert main(["upgrade", "flights"]) == 0
    assert any("watching job" in line or "the new code runs" in line for line in said(capfd))


def test_cancel_follows_the_way_back(gateway: Scripted, script: str, capfd: Output) -> None:
    assert main(["upgrade", "flights", "--detach", script]) == 0
    capfd.readouterr()
    ((_, wish),) = gateway.wishes
    gateway.upgrade_steps = [WATCHING, {"phase": UpgradePhase.RETURNED, "reason": "ana has cancelled the upgrade"}]
    assert main(["upgrade", "flights", "--cancel"]) == 0
    upgrade = gateway.views[OLD].upgrade
    assert upgrade is not None
    assert upgrade.upgrade.canceled_by
    captured = capfd.readouterr()
    assert captured.out == f"{wish.back.job_id}\n"
    assert "the upgrade is cancelled: the old code was started again" in captured.err


@pytest.mark.parametrize(
    ("step", "code", "text"),
    [
        ({"phase": UpgradePhase.UNCHANGED, "reason": "ana has cancelled the upgrade"}, 0, "is cancelled: job"),
        ({**WATCHING, "phase": UpgradePhase.DONE}, 1, "it was too late: the new code runs as job"),
        ({"phase": UpgradePhase.FAILED, "reason": "its files are gone"}, 1, "the upgrade has failed: no version"),
    ],
)
def test_cancel_has_exit_code_0_only_if_the_old_code_runs(
    gateway: Scripted, script: str, capfd: Output, step: dict[str, object], code: int, text: str
) -> None:
    assert main(["upgrade", "flights", "--detach", script]) == 0
    gateway.upgrade_steps = [step]
    assert main(["upgrade", "flights", "--cancel"]) == code
    assert text in "\n".join(said(capfd))


def test_a_detached_cancel_says_that_the_upgrade_is_cancelled(gateway: Scripted, script: str, capfd: Output) -> None:
    assert main(["upgrade", "flights", "--detach", script]) == 0
    assert main(["upgrade", "flights", "--cancel", "--detach"]) == 0
    assert f"the upgrade is cancelled: stopping job {OLD[:8]} with a savepoint" in said(capfd)


def test_a_cancel_that_is_too_late_has_exit_code_1(
    gateway: Scripted, script: str, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(job_id: JobId) -> UpgradeView:
        raise Conflict("it was too late: the upgrade is DONE", hint="`emberkeep upgrade` tells more")

    assert main(["upgrade", "flights", "--detach", script]) == 0
    monkeypatch.setattr(gateway, "cancel_upgrade", refuse)
    assert main(["upgrade", "flights", "--cancel"]) == 1
    assert "it was too late: the upgrade is DONE" in "\n".join(said(capfd))


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["upgrade"], 2, "no job was given"),
        (["upgrade", "flights", "--cancel", "app.py"], 2, "--cancel takes a job and no script"),
        (["upgrade", "flights", "--within", "soon", "SCRIPT"], 2, "--within: 'soon' is not valid"),
        (["upgrade", "flights", "--batches", "3"], 2, "--batches is given without a script"),
        (["upgrade", "flights", "--within", "1h"], 2, "--within is given without a script"),
        (["upgrade", "flights", "--restarts", "0"], 2, "--restarts is given without a script"),
        (["upgrade", "flights", "--cancel", "--timeout", "90s"], 2, "--timeout is given without a script"),
        (["upgrade", "flights", "--savepoint-path", "/s"], 2, "--savepoint-path is given without a script"),
        (["upgrade", "flights", "--secret", "key"], 2, "--secret is given without a script"),
        (["upgrade", "flights", "-c", "spark.a=b"], 2, "--conf is given without a script"),
        (["upgrade", "flights", "--class", "Main"], 2, "--class is given without a script"),
        (["upgrade", "flights"], 4, "is part of no upgrade"),
        (["upgrade", "nobody", "SCRIPT"], 4, "nobody"),
    ],
)
def test_usage(gateway: Scripted, script: str, capfd: Output, words: list[str], code: int, text: str) -> None:
    assert main([script if word == "SCRIPT" else word for word in words]) == code
    assert text in "\n".join(said(capfd))
    assert gateway.wishes == []


def test_info_shows_the_upgrade(gateway: Scripted, script: str, capfd: Output) -> None:
    assert main(["upgrade", "flights", "--detach", script]) == 0
    assert main(["info", "flights"]) == 0
    assert f"stopping job {OLD[:8]} with a savepoint" in capfd.readouterr().out


def test_an_upgrade_whose_reply_was_lost_is_followed_and_not_asked_for_again(
    gateway: Scripted, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.upgrade_steps = [{}, WATCHING, {**WATCHING, "phase": UpgradePhase.DONE}]
    begin, asked = UpgradeCalls.begin, 0

    async def lost(calls: UpgradeCalls, job: JobId, request: UpgradeRequest) -> UpgradeInfo:
        nonlocal asked
        asked += 1
        await begin(calls, job, request)
        raise Unanswered("no reply")

    monkeypatch.setattr(UpgradeCalls, "begin", lost)
    assert main(["upgrade", "flights", script]) == 0
    assert (asked, len(gateway.wishes)) == (1, 1)


def test_the_last_error_says_that_the_upgrade_may_still_begin(
    gateway: Scripted, script: str, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(calls: UpgradeCalls, job: JobId, request: UpgradeRequest) -> UpgradeInfo:
        raise Unanswered("no reply")

    monkeypatch.setattr(UpgradeCalls, "begin", silent)
    monkeypatch.setattr(upgrading, "SILENCE", 0.0)
    assert main(["upgrade", "flights", script]) != 0
    assert f"the upgrade may still begin: `emberkeep upgrade {OLD[:8]}` shows it" in capfd.readouterr().err


def test_an_upload_that_is_interrupted_again_and_again_goes_on_while_it_moves(
    gateway: Scripted, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.upgrade_steps = [{**WATCHING, "phase": UpgradePhase.DONE}]
    interruptions = iter(range(4))
    seconds = itertools.count(0.0, 40.0)  # between two interruptions
    monkeypatch.setattr(uploaded_request, "_PAUSE", 0.0)
    monkeypatch.setattr(log_copy, "time", SimpleNamespace(monotonic=lambda: next(seconds)))

    async def interrupted(client: RestClient, job: PreparedJob, progress: UploadProgress) -> msgspec.Struct:
        if next(interruptions, None) is None:
            return await upload(client, job, progress)
        progress.sent(1)
        raise RetryLater("the JobManager is being replaced")

    monkeypatch.setattr(upgrading, "upload", interrupted)
    assert main(["upgrade", "flights", script]) == 0
    assert len(gateway.wishes) == 1

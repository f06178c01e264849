"""What commands say when Ctrl-C ends them before, while and after they ask for something."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from emberkeep.cli.application import main
from emberkeep.client.calls.savepoints import SavepointCalls
from emberkeep.client.calls.upgrades import UpgradeCalls
from emberkeep.client.declarations.apply import Applying
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_submission import JobSubmitting
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from tests.unit.cli.scripted_gateway import Scripted
from tests.unit.client.fake_job_manager import FakeJobManager, task_manager_info
from tests.unit.rest.fake_gateway import NOW_MS, job_id

Output = pytest.CaptureFixture[str]
JOB = job_id(1)[:8]
NOTHING = "stopped waiting; nothing was asked of the cluster"
CONTINUES = f"the upgrade continues: `emberkeep upgrade {JOB}` follows it, --cancel goes back"


def interrupted_in(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, calls_before: int = 0) -> None:
    """Let Ctrl-C come while a command is in this method, after some calls that end as usual."""
    usual, count = getattr(owner, name), 0

    async def hangs(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count <= calls_before:
            return await usual(*arguments, **named)
        os.kill(os.getpid(), signal.SIGINT)
        return await asyncio.Event().wait()

    monkeypatch.setattr(owner, name, hangs)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "app.py"
    path.write_text("print('new')\n")
    return str(path)


@pytest.mark.parametrize(
    ("words", "owner", "name", "calls_before", "text"),
    [
        ("cancel flights", RestClient, "jobs", 0, NOTHING),
        ("cancel flights", RestClient, "cancel", 0, f"job {JOB} may be cancelled: `emberkeep info {JOB}` shows it"),
        ("cancel flights", RestClient, "job", 0, f"job {JOB} will be cancelled: `emberkeep info {JOB}` shows it"),
        ("stop flights", RestClient, "jobs", 0, NOTHING),
        ("stop flights", SavepointCalls, "stop", 0, f"the request may be carried out: `emberkeep info {JOB}` shows it"),
        ("stop flights", SavepointCalls, "status", 0, f"continues: `emberkeep info {JOB}` shows its progress"),
        ("upgrade flights SCRIPT", RestClient, "jobs", 0, NOTHING),
        ("upgrade flights SCRIPT", UpgradeCalls, "begin", 0, "the upgrade may begin: `emberkeep upgrade"),
        ("upgrade flights SCRIPT", UpgradeCalls, "of_job", 0, CONTINUES),
        ("upgrade flights", UpgradeCalls, "of_job", 0, NOTHING),
        ("upgrade flights --cancel", UpgradeCalls, "cancel", 0, "the upgrade may be cancelled: `emberkeep upgrade"),
    ],
)
def test_a_command_about_a_job_says_what_goes_on(
    gateway: Scripted,
    script: str,
    capfd: Output,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    owner: type,
    name: str,
    calls_before: int,
    text: str,
) -> None:
    interrupted_in(monkeypatch, owner, name, calls_before)
    with pytest.raises(SystemExit, match="130"):
        main(words.replace("SCRIPT", script).split())
    assert text in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "calls_before", "text"),
    [("task_manager", 0, NOTHING), ("stop_task_manager", 0, "tm-1 may end: "), ("task_manager", 1, "tm-1 will end: ")],
)
def test_the_end_of_a_task_manager_goes_on(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch, name: str, calls_before: int, text: str
) -> None:
    fake.task_managers = [task_manager_info("tm-1")]
    interrupted_in(monkeypatch, RestClient, name, calls_before)
    with pytest.raises(SystemExit, match="130"):
        main(["taskmanager", "stop", "tm-1"])
    assert text in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"), [("block", "node-1 may be blocked: "), ("task_managers", "node-1 stays blocked until ")]
)
def test_a_node_stays_blocked(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    interrupted_in(monkeypatch, RestClient, name)
    with pytest.raises(SystemExit, match="130"):
        main(["node", "evacuate", "node-1", "--cause", "repair", "--wait"])
    assert text in capfd.readouterr().err


@pytest.mark.parametrize(
    ("owner", "name", "text"),
    [
        (Applying, "plan", NOTHING),
        (JobSubmitting, "run", "what the plan says may be done: `emberkeep diff` shows what is left to do"),
    ],
)
def test_a_declared_job_may_start(
    gateway: Scripted, script: str, capfd: Output, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, text: str
) -> None:
    file = Path(script).with_name("job.yaml")
    file.write_text("{version: 1, name: counts, script: app.py}\n")
    interrupted_in(monkeypatch, owner, name)
    with pytest.raises(SystemExit, match="130"):
        main(["apply", str(file)])
    assert text in capfd.readouterr().err


def test_the_upgrade_of_a_declared_job_continues(
    gateway: Scripted, script: str, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberkeep.client.upgrades.upgrading._POLL", 0.0)
    file = Path(script).with_name("job.yaml")
    file.write_text("{version: 1, name: counts, script: app.py}\n")
    assert main(["apply", str(file)]) == 0
    old = next(view for view in gateway.views.values() if view.name == "counts").job_id
    gateway.change(old, status=JobStatus.RUNNING, submitted_ms=NOW_MS)
    file.write_text("{version: 1, name: counts, script: app.py, conf: {spark.a: 1}}\n")
    gateway.upgrade_steps = [{"phase": UpgradePhase.WATCHING, "savepoint": "/s/1"}]
    interrupted_in(monkeypatch, UpgradeCalls, "of_job", calls_before=1)
    with pytest.raises(SystemExit, match="130"):
        main(["apply", str(file)])
    assert f"the upgrade continues: `emberkeep upgrade {old[:8]}` follows it" in capfd.readouterr().err

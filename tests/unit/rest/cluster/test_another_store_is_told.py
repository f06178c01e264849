"""Who works for another job store is told with id, address and what to do: over REST, on the page, on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.cli.application import main
from emberkeep.jobmanager.views.cluster import Stranger
from emberkeep.protocol.rest_cluster import TaskManagerOfAnotherStore
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager, task_manager_info
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.server import running_site

pytestmark = pytest.mark.req("SAFE-6")

STRANGER = Stranger(
    id=TaskManagerId("tm-9"), address="127.0.0.9:40001", node_id="node-9", pid=4242, lineage="the-former-store"
)
SHOWN = TaskManagerOfAnotherStore(
    id=TaskManagerId("tm-9"), path="127.0.0.9:40001", node_id="node-9", pid=4242, store="the-former-store"
)
WHAT_TO_DO = "taskmanager.adopt-leader=true"

Output = pytest.CaptureFixture[str]


@pytest.mark.anyio
async def test_the_overview_and_the_page_name_each(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with running_site(tmp_path, gateway) as site:
        for gateway.others in ((), (STRANGER,)):
            own = (await site.get("/v1/overview")).json()["emberkeep"]["taskmanagers-of-another-store"]
            page = (await site.get("/taskmanagers")).body.decode()
            assert (WHAT_TO_DO in page) is bool(gateway.others)
            assert own == [
                {
                    "id": other.id,
                    "path": other.address,
                    "node-id": other.node_id,
                    "pid": other.pid,
                    "store": other.lineage,
                }
                for other in gateway.others
            ]
            facts = ("tm-9", "127.0.0.9:40001", "node-9", "4242", "the-former-store")
            assert all((fact in page) is bool(gateway.others) for fact in facts)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with FakeJobManager().serving() as server:
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


@pytest.mark.parametrize("registered", [[], [task_manager_info("tm-1")]], ids=["none registered", "one registered"])
@pytest.mark.parametrize("command", [["cluster", "status"], ["taskmanagers"], ["taskmanagers", "list"]], ids=" ".join)
def test_the_terminal_names_each_and_the_command(
    fake: FakeJobManager, capfd: Output, command: list[str], registered: list[object]
) -> None:
    fake.task_managers = list(registered)  # type: ignore[arg-type]
    assert main(command) == 0
    assert "another job store" not in capfd.readouterr().out
    fake.of_another_store = (SHOWN,)
    assert main(command) == 0
    out = capfd.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("tm-9")]
    assert line.split() == ["tm-9", "127.0.0.9:40001", "node-9", "4242", "the-former-store"]
    assert f"emberkeep taskmanager -D {WHAT_TO_DO}" in out

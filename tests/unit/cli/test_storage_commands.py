"""``emberkeep storage``: what it prints, that a purge asks first, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.cli.application import main
from emberkeep.protocol.rest_cluster import TaskManagerOfAnotherStore
from emberkeep.protocol.rest_storage import StorageData, StorageInfo
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager

JOB = JobId("9" * 32)
UNSETTLED = StorageInfo(
    location="/mnt/shared",
    cluster="north",
    owned=False,
    problem="the storage was used with another job store",
    hint="settles who owns it",
    data=[StorageData(jobid=JOB, kind="checkpoints", known=False, marked=-1, due=-1)],
)

Output = pytest.CaptureFixture[str]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with FakeJobManager().serving() as server:
        server.storage = UNSETTLED
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


@pytest.mark.req("SAFE-6")
@pytest.mark.usefixtures("fake")
def test_status_and_cluster_status_tell_what_is_not_settled(capfd: Output) -> None:
    assert main(["storage", "status"]) == 1
    out, err = capfd.readouterr()
    assert JOB in out
    assert "not settled" in out
    assert "nothing is deleted there: the storage was used with another job store" in err
    assert main(["storage", "status", "-o", "json"]) == 1
    assert json.loads(capfd.readouterr().out)["data"][0]["jobid"] == JOB
    assert main(["cluster", "status"]) == 0
    assert "nothing is deleted there: the storage was used with another job store; 1 piece" in capfd.readouterr().out


@pytest.mark.req("SAFE-6")
def test_adopt_settles_it(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["storage", "adopt"]) == 0
    assert "Owner:   north" in capfd.readouterr().out
    assert "POST /v1/storage/adopt" in fake.requests
    assert main(["storage", "status"]) == 0


@pytest.mark.req("SAFE-6")
def test_a_purge_is_refused_without_a_word_of_a_person(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["storage", "purge"]) != 0
    assert "--yes" in capfd.readouterr().err
    assert "POST /v1/storage/purge" not in fake.requests
    assert main(["storage", "purge", "--yes"]) == 0
    assert "POST /v1/storage/purge" in fake.requests


@pytest.mark.req("SAFE-6")
def test_a_refused_purge_prints_no_table_where_json_is_expected(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["storage", "purge", "-o", "json"]) != 0
    assert capfd.readouterr().out == ""


@pytest.mark.req("SAFE-6")
def test_who_may_use_the_data_is_told_before_the_question(fake: FakeJobManager, capfd: Output) -> None:
    user = TaskManagerOfAnotherStore(
        id=TaskManagerId("tm-9"), path="127.0.0.9:1", node_id="node-9", pid=42, store="lost-store"
    )
    fake.storage = msgspec.structs.replace(UNSETTLED, used_by=(user,))
    for words in (["status"], ["purge"]):
        assert main(["storage", *words]) != 0
        assert "tm-9" in capfd.readouterr().out
    assert main(["storage", "purge", "--yes"]) != 0
    assert "may use the data in the storage" in capfd.readouterr().err
    assert main(["storage", "purge", "--yes", "--force"]) == 0
    assert not fake.storage.data

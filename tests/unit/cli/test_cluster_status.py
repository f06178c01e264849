"""``emberkeep cluster``: the link to the web page, and a stop that needs nothing but the record of the cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.processes.process_identity import identify, own_identity
from emberkeep.cli.application import main
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape, DaemonRecord, write_cluster
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager

pytestmark = pytest.mark.req("SEC-7")

Output = pytest.CaptureFixture[str]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with FakeJobManager().serving() as server:
        record = ClusterRecord(
            url=server.url,
            token_file=str(tmp_path / "token"),
            shape=ClusterShape(nodes=(), slots=1, memory="", definitions=()),
            job_manager=DaemonRecord(name="jobmanager", identity=own_identity(), directory=str(tmp_path)),
            task_managers=(),
        )
        write_cluster(tmp_path / "cluster.json", record)
        yield server


def test_the_link_works_once_and_is_not_made_of_the_token(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["cluster", "status"]) == 0

    out = capfd.readouterr().out
    assert f"{fake.url}/login?code=once\n" in out
    assert "works once, within 10 minutes" in out
    assert TOKEN not in out


def test_machine_readable_output_makes_no_link(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["cluster", "status", "-o", "json"]) == 0
    assert "login" not in capfd.readouterr().out


def test_of_an_older_job_manager_the_address_alone_is_shown(fake: FakeJobManager, capfd: Output) -> None:
    fake.makes_login_links = False

    assert main(["cluster", "status"]) == 0

    out = capfd.readouterr().out
    assert f"{fake.url}\n" in out
    assert "login?" not in out


@pytest.mark.parametrize("what", ["no token", "another token"])
def test_a_cluster_whose_token_is_of_no_use_any_more_can_be_stopped(
    fake: FakeJobManager, tmp_path: Path, what: str
) -> None:
    if what == "no token":
        (tmp_path / "token").unlink()
    else:
        (tmp_path / "token").write_text("x" * 32)
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        record = ClusterRecord(
            url=fake.url,
            token_file=str(tmp_path / "token"),
            shape=ClusterShape(nodes=(), slots=1, memory="", definitions=()),
            job_manager=DaemonRecord(name="jobmanager", identity=identity, directory=str(tmp_path)),
            task_managers=(),
        )
        write_cluster(tmp_path / "cluster.json", record)
        try:
            assert main(["cluster", "down"]) == 0
        finally:
            process.kill()
    assert not (tmp_path / "cluster.json").exists()


@pytest.mark.parametrize("option", ["--job-managers", "--zookeepers"])
def test_a_cluster_of_no_servers_is_refused(tmp_path: Path, option: str, capfd: Output) -> None:
    assert main(["cluster", "up", "--ha", option, "0", "--state-dir", str(tmp_path / "state")]) == 2
    assert f"{option} 0: not " in capfd.readouterr().err

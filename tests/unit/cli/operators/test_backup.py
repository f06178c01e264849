"""``emberkeep backup`` as a user runs it, against the job store of a cluster whose processes have ended."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from emberkeep.cli.application import main
from tests.support.backups.sites import EmbeddedSite

pytestmark = pytest.mark.req("SAFE-23")

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def site(tmp_path: Path) -> EmbeddedSite:
    site = EmbeddedSite(tmp_path / "old", tmp_path / "storage")

    async def run() -> None:
        async with site.led() as store:
            graph = await site.accept(store, 1)
            await store.record_attempt(graph.job_id, 1)
            await store.record_checkpoints(graph.job_id, 1, (site.checkpoint(graph, 5),))

    asyncio.run(run())
    return site


def options(tmp_path: Path, state: str) -> list[str]:
    return ["--state-dir", str(tmp_path / state), "-D", f"high-availability.storageDir={tmp_path / 'storage'}"]


@pytest.mark.usefixtures("site")
def test_a_cluster_is_backed_up_verified_and_restored(tmp_path: Path, capfd: Output) -> None:
    backup = str(tmp_path / "backup.tar")
    assert main(["backup", "create", backup, "--with-keys", *options(tmp_path, "old")]) == 0
    assert "1 job, 4 files" in capfd.readouterr().out
    assert main(["backup", "verify", backup, *options(tmp_path, "old")]) == 0
    assert "the backup is sound" in capfd.readouterr().err
    shutil.rmtree(tmp_path / "old")

    assert main(["backup", "restore", backup, "--dry-run", *options(tmp_path, "new")]) == 0
    assert "its checkpoints (batch 4)" in capfd.readouterr().out
    assert not (tmp_path / "new").exists()
    assert main(["backup", "restore", backup, *options(tmp_path, "new")]) == 2
    assert "nothing is restored" in capfd.readouterr().err
    assert main(["backup", "restore", backup, "--yes", *options(tmp_path, "new")]) == 0
    assert "start the JobManager" in capfd.readouterr().err
    assert main(["backup", "restore", backup, "--yes", *options(tmp_path, "new")]) == 1
    assert "there is a job store already" in capfd.readouterr().err


@pytest.mark.usefixtures("site")
def test_what_python_prints_as_it_starts_is_not_the_result(
    tmp_path: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["backup", "create", str(tmp_path / "backup.tar"), *options(tmp_path, "old")]) == 0
    assert "1 job, " in capfd.readouterr().out


def test_a_damaged_backup_has_an_exit_code_and_names_the_damage(
    site: EmbeddedSite, tmp_path: Path, capfd: Output
) -> None:
    backup = tmp_path / "backup"
    assert main(["backup", "create", str(backup), *options(tmp_path, "old")]) == 0
    (graph,) = (backup / "graphs").iterdir()
    graph.write_bytes(b"other")
    capfd.readouterr()
    assert main(["backup", "verify", str(backup), *options(tmp_path, "old")]) == 1
    assert f"DAMAGED  graphs/{graph.name}: has 5 bytes" in capfd.readouterr().out
    assert main(["backup", "verify", str(backup), "-o", "json", *options(tmp_path, "old")]) == 1
    assert json.loads(capfd.readouterr().out)["damages"][0]["member"] == f"graphs/{graph.name}"
    assert site.layout.token_file.exists()


def test_an_incomplete_backup_is_written_and_has_an_exit_code(
    site: EmbeddedSite, tmp_path: Path, capfd: Output
) -> None:
    (path,) = site.layout.graphs.glob("*/*.graph")
    path.unlink()
    assert main(["backup", "create", str(tmp_path / "backup"), *options(tmp_path, "old")]) == 1
    assert "the backup lacks something of job" in capfd.readouterr().err
    assert (tmp_path / "backup" / "manifest.record").exists()

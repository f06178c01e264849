"""Periodic savepoints of a real stream, whose driver is killed: they are made, kept and deleted as configured."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.chronicle.occurrence import What
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.manifest import MANIFEST_NAME
from emberkeep.protocol.rest_savepoints import SavepointEntry
from tests.integration.chronicle.shown_events import shown_events
from tests.integration.clusters import Cluster, one_slot_cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.counted_windows import SCRIPT, Rows, wait_for_window

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    with one_slot_cluster(shell) as cluster:
        yield cluster


@pytest.mark.req("SAFE-4", "END-9")
def test_savepoints_are_made_and_deleted_without_anybody_asking(cluster: Cluster, tmp_path: Path) -> None:
    rows, shell, savepoints = Rows(tmp_path / "rows"), cluster.shell, tmp_path / "savepoints"
    script = tmp_path / "counts.py"
    script.write_text(SCRIPT)
    rows.more()
    rows.more()
    settings = ("interval=1s", "retained=1")
    options = [part for each in settings for part in ("-D", f"execution.savepoint.{each}")]
    place = f"execution.checkpointing.savepoint-dir={savepoints}"
    job = cluster.submit(script, *options, "-D", place, arguments=(str(rows.place),))
    wait_for_window(cluster, job, rows, 0)
    asked_for = shell.done("savepoint", "create", job).out.strip()
    os.kill(cluster.wait_for_driver(job), signal.SIGKILL)
    wait_for_window(cluster, job, rows, 0)

    def has_deleted() -> bool:
        return "savepoint-retired" in shell.done("events", job, "-o", "json").out

    until(lambda: cluster.job(job).emberkeep.attempt == 2, lambda: cluster.story(job))
    until(has_deleted, "a periodic savepoint is deleted")
    periodic = cluster.job(job).emberkeep.periodic_savepoints
    assert periodic is not None
    assert periodic.kept >= 1
    assert periodic.problem == ""
    shell.done("savepoint", "verify", asked_for)
    cluster.cancel_all()
    until(lambda: cluster.job(job).state.is_globally_terminal, "the job has ended")
    kept = [line.split()[-1] for line in shell.done("savepoint", "list", job).out.splitlines() if " periodic " in line]
    assert kept, "those of an ended job stay"
    for path in kept:
        shell.done("savepoint", "verify", path)


@pytest.mark.req("SAFE-4")
def test_savepoints_that_are_too_old_are_deleted_and_known_until_their_files_are_gone(
    cluster: Cluster, tmp_path: Path
) -> None:
    rows, savepoints = Rows(tmp_path / "rows"), tmp_path / "savepoints"
    script = tmp_path / "counts.py"
    script.write_text(SCRIPT)
    rows.more()
    rows.more()
    settings = ("savepoint.interval=1s", "savepoint.retained=100", "savepoint.max-age=8s")
    place = f"checkpointing.savepoint-dir={savepoints}"
    options = [part for each in (*settings, place) for part in ("-D", f"execution.{each}")]
    job = cluster.submit(script, *options, arguments=(str(rows.place),))

    def listed() -> list[SavepointEntry]:
        """Newest first."""
        return cluster.ask(lambda client: client.savepoints.all()).savepoints

    # With a damaged manifest, nobody can tell whether this is what was made there.
    oldest = until(listed, lambda: cluster.story(job))[-1].path
    manifest = Path(oldest.removeprefix("file://")) / MANIFEST_NAME
    content = manifest.read_bytes()
    manifest.write_bytes(content + b" ")
    (refused,) = shown_events(cluster, What.SAVEPOINT_NOT_RETIRED, job=job)
    assert f"periodic savepoint {oldest} cannot be deleted: " in refused["message"]
    assert "_manifest: damaged" in refused["message"]
    (event, *_) = shown_events(cluster, What.SAVEPOINT_RETIRED, job=job)
    assert oldest not in event["message"], "it does not keep the others"
    known = listed()[-1]
    assert known.path == oldest
    assert known.retired > 0, "no job can start from it any longer"
    periodic = cluster.job(job).emberkeep.periodic_savepoints
    assert periodic is not None
    assert "_manifest: damaged" in periodic.problem

    manifest.write_bytes(content)
    until(lambda: oldest not in [each.path for each in listed()], lambda: f"{listed()}", pause=0.5)
    assert not manifest.parent.exists()
    retired = shown_events(cluster, What.SAVEPOINT_RETIRED, job=job, count=2)
    assert [each for each in retired if oldest in each["message"]]
    kept = [each.path for each in listed() if each.retired < 0]
    assert kept, "the newest stays"
    cluster.cancel(job)
    cluster.wait_for_end(job, JobStatus.CANCELED)
    cluster.shell.done("savepoint", "verify", listed()[0].path)

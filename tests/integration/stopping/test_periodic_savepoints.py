"""Periodic savepoints of a real stream, whose driver is killed: they are made, kept and deleted as configured."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

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

    until(has_deleted, "a periodic savepoint is deleted")
    assert cluster.job(job).emberkeep.attempt == 2
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

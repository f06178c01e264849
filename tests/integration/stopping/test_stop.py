"""Savepoint, suspend, restore and drain of an unmodified streaming script, by the commands of a user."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.counted_windows import SCRIPT, Rows, stopped, wait_for_window
from tests.integration.standbys.warm_cluster import warm_cluster

pytestmark = pytest.mark.integration


# Through the state gateway; without it: tests/integration/spark/test_stop.py.
GATEWAY = ("-D", "state.backend.local-recovery=true")


@pytest.fixture(params=[ProcessStart.COLD, pytest.param(ProcessStart.HOT, marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    """How the jobs' processes start is the parameter."""
    if request.param is ProcessStart.HOT:
        cluster: Cluster = warm_cluster(tmp_path, class_archive, ("127.0.0.2",), *GATEWAY)
    else:
        cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        with cluster.shell.traces.watching():
            if request.param is ProcessStart.COLD:
                cluster.up("-D", "taskmanager.numberOfTaskSlots=1", *GATEWAY, *QUICK)
            yield cluster
            cluster.cancel_all()
    finally:
        cluster.close()


@pytest.mark.req("END-3", "END-4", "END-5", "END-6", "END-9")
def test_savepoint_failed_stop_stop_restore_and_drain(cluster: Cluster, tmp_path: Path) -> None:
    rows, shell = Rows(tmp_path / "rows"), cluster.shell
    script = tmp_path / "counts.py"
    script.write_text(SCRIPT)
    savepoints = tmp_path / "savepoints"
    rows.more()
    rows.more()
    job = cluster.submit(script, arguments=(str(rows.place),))
    wait_for_window(cluster, job, rows, 0)

    early = shell.done("savepoint", "create", job, "--savepoint-path", str(savepoints)).out.strip()
    shell.done("savepoint", "verify", early)
    # A savepoint that cannot be written: the job goes on as if nothing had been asked, in the same attempt.
    refused = shell.run("stop", job, "--savepoint-path", "/proc/no-such-place")
    assert refused.code == 1, refused
    rows.more()
    wait_for_window(cluster, job, rows, 10)
    assert cluster.job(job).emberkeep.attempt == 1
    assert rows.afterwards() == 0, "the script saw nothing of it"

    suspended = stopped(cluster, job, "--savepoint-path", str(savepoints))
    assert rows.afterwards() == 1, "the script has come to its own end"
    at_suspend = rows.counted()

    rows.more()
    again = cluster.submit(script, "--from-savepoint", suspended, arguments=(str(rows.place),))
    wait_for_window(cluster, again, rows, 30)
    os.kill(cluster.wait_for_driver(again), signal.SIGKILL)
    rows.more()
    wait_for_window(cluster, again, rows, 40)
    assert cluster.job(again).emberkeep.attempt == 2
    assert all(rows.counted()[window] == count for window, count in at_suspend.items())

    drained = stopped(cluster, again, "--drain", "--savepoint-path", str(savepoints))
    assert rows.counted() == rows.answer()
    assert rows.afterwards() == 2
    shown = json.loads(shell.done("savepoint", "show", drained, "-o", "json").out)
    assert "counts" in json.dumps(shown)

"""A real stream is upgraded: to good code, and to bad code, from which it comes back by itself under another leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo
from tests.integration.clusters import Cluster, one_slot_cluster
from tests.integration.commands import SMALL, Shell
from tests.integration.conditions import until
from tests.integration.counted_windows import SCRIPT, Rows, wait_for_window
from tests.integration.streams import failing_in_its_second_batch

pytestmark = [pytest.mark.integration, pytest.mark.long]

BAD = failing_in_its_second_batch(SCRIPT)


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    with one_slot_cluster(shell) as cluster:
        yield cluster


@pytest.mark.req("END-9", "HA-5")
def test_a_good_upgrade_then_a_bad_one_that_goes_back_under_another_leader(cluster: Cluster, tmp_path: Path) -> None:
    rows, shell = Rows(tmp_path / "rows"), cluster.shell
    old, new, bad = (tmp_path / f"{name}.py" for name in ("old", "new", "bad"))
    old.write_text(SCRIPT)
    new.write_text(SCRIPT + "# version 2\n")
    bad.write_text(BAD)
    savepoints = ("--savepoint-path", str(tmp_path / "savepoints"))
    for _ in range(3):
        rows.more()
    first = cluster.submit(old, "--name", "counts", arguments=(str(rows.place),))
    wait_for_window(cluster, first, rows, 10)

    options = ("--batches", "1", "--within", "90s", *savepoints, *SMALL, "--num-executors", "1")
    good = shell.start("upgrade", "counts", *options, str(new), str(rows.place))
    until(lambda: newest(cluster, first).phase is UpgradePhase.WATCHING, "the new code is watched")
    rows.more()
    rows.more()
    ended = good.wait()
    assert ended.code == 0, ended
    second = JobId(ended.out.strip())
    assert cluster.job(first).state is JobStatus.FINISHED
    wait_for_window(cluster, second, rows, 30)

    options = ("--batches", "5", "--within", "90s", *savepoints, *SMALL, "--num-executors", "1")
    worse = shell.start("upgrade", "counts", *options, str(bad), str(rows.place))
    until(lambda: newest(cluster, second).phase is UpgradePhase.WATCHING, "the bad code is watched")
    cluster.kill("jobmanager")
    for _ in range(3):
        rows.more()
    cluster.up()
    ended = worse.wait()
    assert ended.code == 1, ended
    assert "the old code was started again" in ended.err
    upgrade = newest(cluster, second)
    assert upgrade.phase is UpgradePhase.RETURNED
    assert "no such column" in upgrade.reason
    assert cluster.job(upgrade.new_job).state is JobStatus.FAILED

    third = upgrade.back_job
    rows.more()
    wait_for_window(cluster, third, rows, 90)  # it has read all
    shell.done("stop", third, "--drain", *savepoints)
    cluster.wait_for_end(third)
    assert rows.counted() == rows.answer()
    told = shell.done("events", second).out
    assert "going back, because the new job failed" in told
    assert upgrade.text.split(",", maxsplit=1)[0] in shell.done("info", third).out


def newest(cluster: Cluster, job_id: JobId) -> UpgradeInfo:
    try:
        return cluster.ask(lambda client: client.upgrades.of_job(job_id))
    except Absent:
        return until(lambda: cluster.job(job_id).emberkeep.upgrade, "the upgrade is recorded")

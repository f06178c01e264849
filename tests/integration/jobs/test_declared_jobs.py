"""A stream that a file declares, on a real cluster: applied, applied again, changed, read back, and ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from tests.integration.clusters import Cluster, kill_process, one_slot_cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.declared_file import DeclaredFile
from tests.integration.streams import SCRIPT, failing_in_its_second_batch

pytestmark = [pytest.mark.integration, pytest.mark.long]

AT_ONCE: dict[str, Any] = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "100ms",
    "restart-strategy.restart-on": "any",
}
NEVER: dict[str, Any] = {"restart-strategy.type": "none"}
BAD = failing_in_its_second_batch(SCRIPT)


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    with one_slot_cluster(shell) as cluster:
        yield cluster


@pytest.fixture
def file(cluster: Cluster, tmp_path: Path) -> DeclaredFile:
    return DeclaredFile(cluster, tmp_path / "counts")


def test_a_file_is_applied_again_changed_read_back_and_decides_about_restarts(
    cluster: Cluster, file: DeclaredFile
) -> None:
    policy = {"batches": 2, "within": "3min", "restarts": 0}
    file.declare(SCRIPT, options=AT_ONCE, savepoints={"interval": "6h", "retained": 2}, upgrade=policy)
    assert file.diff() == (1, ["start: no job of this name exists"])
    first = file.apply()
    driver = cluster.wait_for_driver(first)
    file.wait_for_batches(first)
    schedule = cluster.job(first).emberkeep.periodic_savepoints
    assert schedule is not None, "the cluster makes savepoints as the file says"

    # What has not changed is left as it is, also if the file is the one that the cluster prints.
    assert file.diff()[0] == 0
    assert file.apply() == first
    printed = file.printed()
    assert yaml.safe_load(printed.path.read_text()) == yaml.safe_load(file.path.read_text())
    assert printed.diff()[0] == 0
    assert printed.apply() == first
    assert cluster.wait_for_driver(first) == driver
    assert file.jobs() == {first}

    kill_process(driver)
    cluster.wait_for_driver(first, attempt=2)
    file.wait_for_batches(first)

    # A change is shown, and carried out as an upgrade under the file's policy.
    file.declare(SCRIPT + "# version 2\n", options=NEVER, upgrade=policy)
    code, lines = file.diff()
    assert code == 1
    assert lines[0].startswith(f"upgrade: upgrade job {first[:8]} (counts)")
    changes = [re.sub(r"[0-9a-f]{12}", "HASH", line) for line in lines[1:]]
    assert changes == [
        "~ content of script counts.py: HASH -> HASH",
        "- options.restart-strategy.fixed-delay.delay: 100ms",
        "- options.restart-strategy.restart-on: any",
        "~ options.restart-strategy.type: fixed-delay -> none",
        "- savepoints.interval: 6h",
        "- savepoints.retained: 2",
    ]
    assert file.jobs() == {first}, "to look changes nothing"
    second = file.apply()
    upgrade = cluster.ask(lambda client: client.upgrades.of_job(second))
    assert (upgrade.phase, upgrade.old_job, upgrade.new_job) == (UpgradePhase.DONE, first, second)
    assert (upgrade.batches, upgrade.within, upgrade.restarts) == (2, 180_000, 0)
    assert cluster.job(first).state is JobStatus.FINISHED
    assert file.jobs() == {first, second}

    # A change that is not good under this policy leaves the job as it was declared before.
    good = file.path.read_text()
    file.declare(BAD, options=AT_ONCE, upgrade=policy)
    code, lines = file.applied()
    assert code == 1
    assert "the declared job does not run" in lines[-2], lines
    assert "the old code was started again" in lines[-2], lines
    upgrade = cluster.ask(lambda client: client.upgrades.of_job(second))
    assert upgrade.phase is UpgradePhase.RETURNED
    third = upgrade.back_job
    file.path.write_text(good)
    file.script.write_text(SCRIPT + "# version 2\n")
    assert file.diff()[0] == 0
    assert file.apply() == third
    file.wait_for_batches(third)

    # Its driver is not restarted, as the file says. What follows is for a person to decide.
    kill_process(cluster.wait_for_driver(third))
    cluster.wait_for_end(third, JobStatus.FAILED)
    code, lines = file.applied()
    assert code == 1
    assert "is FAILED" in lines[0]
    assert "--from-savepoint PATH" in lines[1]
    fourth = file.apply("--from-savepoint", upgrade.savepoint)
    file.wait_for_batches(fourth)
    file.stream.finish()
    cluster.wait_for_end(fourth)
    assert file.diff() == (0, [f"nothing: job {fourth[:8]} (counts) is FINISHED as declared; --again runs it again"])
    assert file.apply() == fourth
    assert file.jobs() == {first, second, third, fourth, upgrade.new_job}
    file.stream.check_rows()


def test_clients_that_apply_a_file_at_once_start_one_job(cluster: Cluster, file: DeclaredFile) -> None:
    file.declare(SCRIPT)
    clients = [cluster.shell.start("apply", str(file.path)) for _ in range(3)]
    ended = [client.wait() for client in clients]
    assert [each.code for each in ended] == [0, 0, 0], "\n".join(map(str, ended))
    (job_id,) = {JobId(each.out.strip()) for each in ended}
    assert file.jobs() == {job_id}
    cluster.wait_for_driver(job_id)
    until(lambda: file.stream.batches() >= 1, lambda: cluster.story(job_id))

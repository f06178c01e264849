"""A real stream is upgraded again and again. In each phase the leader is killed, and the driver where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo
from tests.integration.assassins import UpgradeAssassin
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import SMALL, Running, Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("HA-5"), pytest.mark.req("HA-7")]

SESSION = "high-availability.zookeeper.client.session-timeout=4s"
RESTARTED = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")
# It works for one batch, and fails in the second one of each attempt.
BAD = SCRIPT.replace(
    "def store(frame, number):\n",
    "seen = []\ndef store(frame, number):\n    seen.append(number)\n"
    "    if len(seen) > 1:\n        raise RuntimeError('no such column')\n",
)
# It works for no batch.
STUCK = SCRIPT.replace("def store(frame, number):\n", "def store(frame, number):\n    time.sleep(600)\n").replace(
    "import os, sys", "import os, sys, time"
)
GOOD_PHASES = (UpgradePhase.STOPPING, UpgradePhase.STARTING, UpgradePhase.WATCHING)
BAD_PHASES = (UpgradePhase.CANCELLING, UpgradePhase.RETURNING)


@dataclass
class Upgraded:
    """A stream, and the job that runs it now."""

    cluster: Cluster
    stream: Stream
    job: JobId

    def wait_for_batches(self, more: int = 3) -> None:
        wanted = self.stream.batches() + more
        until(lambda: self.stream.batches() >= wanted, lambda: self.cluster.story(self.job))

    def start(self, script: Path, *options: str, within: str = "3min") -> Running:
        own = ("--within", within, "--savepoint-path", str(self.stream.place.parent / "savepoints"))
        words = (*own, *SMALL, "--num-executors", "1", *RESTARTED, *options)
        return self.cluster.shell.start("upgrade", self.job, *words, str(script), str(self.stream.place))

    def wait_for_phase(self, phase: UpgradePhase, running: Running) -> UpgradeInfo:
        """The upgrade of the job once it is in the phase, whoever leads."""

        def look() -> UpgradeInfo | None:
            try:
                upgrade = self.cluster.ask(lambda client: client.upgrades.of_job(self.job))
            except (Absent, RetryLater):
                return None
            return upgrade if upgrade.phase is phase else None

        return until(look, lambda: str(running))

    def driver(self) -> int:
        return self.cluster.wait_for_driver(self.job, self.cluster.job(self.job).emberkeep.attempt)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("upgrade-kills"), class_archive.parent))
    try:
        cluster.up("--ha", "--slots", "1", "-D", SESSION, *QUICK, "-D", "heartbeat.timeout=15s")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def upgraded(cluster: Cluster) -> Iterator[Upgraded]:
    """The stream of all tests. At their end, its output shows each row once, and one driver at a time."""
    stream = Stream(cluster.shell.directory / "output")
    cluster.shell.write("counts.py", SCRIPT)
    job = cluster.submit("counts.py", *RESTARTED, "--name", "counts", arguments=(str(stream.place),))
    upgraded = Upgraded(cluster, stream, job)
    upgraded.wait_for_batches()
    yield upgraded
    upgraded.wait_for_batches()
    stream.finish()
    cluster.wait_for_end(upgraded.job)
    stream.check_rows()
    turns = [pid for pid, _ in groupby(pid for pid, _ in stream.history())]
    assert len(turns) == len(set(turns)), "a driver wrote after the next one had begun"


def ended(upgraded: Upgraded, running: Running, code: int) -> UpgradeInfo:
    """Wait for the end of the upgrade. Return it, once the lost JobManager runs again."""
    outcome = running.wait()
    assert outcome.code == code, outcome
    upgraded.cluster.up()
    return upgraded.cluster.ask(lambda client: client.upgrades.of_job(upgraded.job))


def unfinished(cluster: Cluster) -> set[JobId]:
    return {job.jid for job in cluster.ask(lambda client: client.jobs()) if not job.state.is_globally_terminal}


@pytest.mark.parametrize("phase", GOOD_PHASES, ids=lambda phase: phase.value)
def test_a_good_upgrade_goes_on_under_the_next_leader(
    cluster: Cluster, upgraded: Upgraded, phase: UpgradePhase
) -> None:
    script = cluster.shell.write("good.py", f"{SCRIPT}# after a leader lost while {phase.value}\n")
    with UpgradeAssassin(cluster.record, cluster.leader()[1].identity.pid, phase) as assassin:
        running = upgraded.start(script, "--batches", "2")
        assassin.wait()
    upgrade = ended(upgraded, running, code=0)
    assert (upgrade.phase, upgrade.old_job) == (UpgradePhase.DONE, upgraded.job)
    assert cluster.job(upgraded.job).state is JobStatus.FINISHED
    upgraded.job = upgrade.new_job
    assert unfinished(cluster) == {upgraded.job}
    upgraded.wait_for_batches()


@pytest.mark.parametrize("phase", BAD_PHASES, ids=lambda phase: phase.value)
def test_a_bad_upgrade_goes_back_under_the_next_leader(
    cluster: Cluster, upgraded: Upgraded, phase: UpgradePhase
) -> None:
    script = cluster.shell.write("bad.py", BAD)
    restarted = ("-D", "restart-strategy.restart-on=any", "--restarts", "0")  # the first restart is one too many
    with UpgradeAssassin(cluster.record, cluster.leader()[1].identity.pid, phase) as assassin:
        running = upgraded.start(script, "--batches", "5", *restarted)
        assassin.wait()
    upgrade = ended(upgraded, running, code=1)
    assert (upgrade.phase, upgrade.old_job) == (UpgradePhase.RETURNED, upgraded.job)
    assert cluster.job(upgrade.new_job).state is JobStatus.CANCELED
    upgraded.job = upgrade.back_job
    assert unfinished(cluster) == {upgraded.job}
    upgraded.wait_for_batches()


def test_lost_drivers_delay_an_upgrade(cluster: Cluster, upgraded: Upgraded) -> None:
    """The old one is lost as it is asked to stop, the new one while it is watched."""
    script = cluster.shell.write("good.py", f"{SCRIPT}# after two lost drivers\n")
    with UpgradeAssassin(cluster.record, upgraded.driver(), UpgradePhase.STOPPING) as assassin:
        running = upgraded.start(script, "--batches", "50")
        assassin.wait()
    new_job = upgraded.wait_for_phase(UpgradePhase.WATCHING, running).new_job
    kill_process(cluster.wait_for_driver(new_job))
    upgrade = ended(upgraded, running, code=0)
    assert (upgrade.phase, upgrade.new_job) == (UpgradePhase.DONE, new_job)
    assert cluster.job(new_job).emberkeep.attempt == 2
    upgraded.job = new_job
    upgraded.wait_for_batches()


def test_leader_and_old_driver_lost_together_delay_an_upgrade(cluster: Cluster, upgraded: Upgraded) -> None:
    script = cluster.shell.write("good.py", f"{SCRIPT}# after leader and driver were lost together\n")
    with UpgradeAssassin(cluster.record, cluster.leader()[1].identity.pid, UpgradePhase.STOPPING) as assassin:
        assassin.add(upgraded.driver())
        running = upgraded.start(script, "--batches", "2")
        assassin.wait()
    upgrade = ended(upgraded, running, code=0)
    assert (upgrade.phase, upgrade.old_job) == (UpgradePhase.DONE, upgraded.job)
    upgraded.job = upgrade.new_job
    assert unfinished(cluster) == {upgraded.job}
    upgraded.wait_for_batches()


def test_drivers_lost_on_the_way_back_delay_the_old_code(cluster: Cluster, upgraded: Upgraded) -> None:
    """The new one is lost with the leader as it is cancelled, then the first one that runs the old code again."""
    script = cluster.shell.write("stuck.py", STUCK)
    with UpgradeAssassin(cluster.record, cluster.leader()[1].identity.pid, UpgradePhase.CANCELLING) as assassin:
        running = upgraded.start(script, "--batches", "5", within="25s")
        assassin.add(cluster.wait_for_driver(upgraded.wait_for_phase(UpgradePhase.WATCHING, running).new_job))
        assassin.wait()
    back_job = upgraded.wait_for_phase(UpgradePhase.RETURNED, running).back_job
    kill_process(cluster.wait_for_driver(back_job))
    upgrade = ended(upgraded, running, code=1)
    assert (upgrade.phase, upgrade.back_job) == (UpgradePhase.RETURNED, back_job)
    assert cluster.job(upgrade.new_job).state is JobStatus.CANCELED
    upgraded.job = back_job
    assert unfinished(cluster) == {upgraded.job}
    upgraded.wait_for_batches()
    assert cluster.job(back_job).emberkeep.attempt == 2

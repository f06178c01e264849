"""The resource driver for Slurm keeps its contract over a real Slurm, too. Its jobs do nothing."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.errors import UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.daemons.jobmanager.resource_drivers.slurm_jobs import SlurmJobs
from tests.integration.conditions import until
from tests.integration.slurm.real_slurm import NODES, RealSlurm, own_network, why_impossible
from tests.support.contracts.resource_driver import (
    FREE,
    NONE,
    Platform,
    ResourceDriverContract,
    blocked,
    listed,
)
from tests.support.resource_drivers.slurm_driver import slurm_driver

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]


class SlurmPlatform:
    """``root``: the state directory of a cluster of its own."""

    def __init__(self, root: Path, slurm: RealSlurm) -> None:
        self.nodes = NODES
        self._root = root
        self._slurm = slurm

    def leader(self) -> SlurmJobs:
        return slurm_driver(self._root, memory="1g")

    def _settled(self) -> dict[str, tuple[int, str, str]]:
        """The running jobs, once no job is on its way in or out."""
        self._slurm.wait_until(lambda: all(state == "RUNNING" for _, state, _ in self._slurm.jobs().values()))
        return self._slurm.jobs()

    def ends(self, task_manager: TaskManagerId) -> None:
        number, _, _ = self._settled()[task_manager]

        def is_gone() -> bool:
            # Slurm loses a signal to a batch step that it has not launched yet.
            self._slurm.run("scancel", "--quiet", "--batch", "--signal=KILL", str(number))
            return task_manager not in self._slurm.jobs()

        self._slurm.wait_until(is_gone)

    def node_of(self, task_manager: TaskManagerId) -> str:
        return self._settled()[task_manager][2]

    def running(self, task_manager: TaskManagerId) -> int:
        return int(task_manager in self._settled())

    async def interrupted_start(self) -> TaskManagerId:
        return (await self.leader().start(BlockedPlaces(), frozenset())).id

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        # Not killed: Slurm forgets what it has not written yet, such as the start of a job a moment ago.
        self._slurm.freeze_controller()
        yield
        self._slurm.thaw_controller()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSlurm]:
    with own_network():
        slurm = RealSlurm(tmp_path_factory.mktemp("slurm"))
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.close()


def losing_a_reply(place: Path) -> Path:
    """Slurm's commands, of which the first `sbatch` submits its job and never says so."""
    directory = place / "commands"
    directory.mkdir()
    for name in ("squeue", "scancel", "sinfo"):
        (directory / name).symlink_to(str(shutil.which(name)))
    script = directory / "sbatch"
    script.write_text(
        f'#!/bin/sh\nset -e\n{shutil.which("sbatch")} "$@"\nif mkdir {place}/lost 2>/dev/null; then sleep 100; fi\n'
    )
    script.chmod(0o700)
    return directory


class TestSlurmJobs(ResourceDriverContract):
    @pytest.fixture
    def platform(self, tmp_path: Path, slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\nexec sleep 1000\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
        yield SlurmPlatform(tmp_path / "state", slurm)
        for number, _, _ in slurm.jobs().values():
            slurm.run("scancel", str(number))
        until(lambda: not slurm.jobs(), slurm.story, seconds=60)

    async def test_a_submission_whose_reply_is_lost_is_found_and_a_repeated_one_never_runs(
        self, platform: Platform, slurm: RealSlurm, tmp_path: Path
    ) -> None:
        driver = slurm_driver(
            tmp_path / "state", memory="1g", command_timeout="15s", bin_dir=str(losing_a_reply(tmp_path))
        )
        with pytest.raises(UnknownOutcome):
            await driver.start(FREE, NONE)
        assert [state for _, state in slurm.jobs_named("-tm-0")] in (["RUNNING"], ["PENDING"])
        await driver.start(FREE, NONE)  # before the queue was read again
        (first, _), (second, _) = slurm.jobs_named("-tm-0")
        slurm.wait_until(lambda: slurm.reason_of(second) == "Dependency")
        assert list(await listed(driver)) == [TaskManagerId("tm-0")]
        slurm.wait_until(lambda: [number for number, _ in slurm.jobs_named("-tm-0")] == [first])
        assert slurm.state_of(second) in ("CANCELLED", "")
        assert list(await listed(driver)) == [TaskManagerId("tm-0")]
        assert not list((tmp_path / "state").rglob(f"*-{second}.log")), "it never began"

    async def test_one_that_comes_back_avoids_the_node_that_was_blocked_since(self, platform: Platform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        node = platform.node_of(one)
        platform.ends(one)
        assert await listed(driver) == {one: False}
        await driver.revive(one, blocked(node))
        assert platform.node_of(one) != node

    async def test_the_job_of_a_failed_node_is_not_queued_again_by_slurm(
        self, platform: Platform, slurm: RealSlurm
    ) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        node = platform.node_of(one)
        ((number, _),) = slurm.jobs_named("-tm-0")
        with slurm.failed_node(node):
            slurm.wait_until(lambda: slurm.state_of(number) not in ("RUNNING", "COMPLETING"))
            assert slurm.state_of(number) == "NODE_FAIL"
            assert await listed(driver) == {one: False}
            await driver.revive(one, FREE)
            assert platform.node_of(one) != node
            ((again, _),) = slurm.jobs_named("-tm-0")
            assert again != number
        assert await listed(driver) == {one: True}

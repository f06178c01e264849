"""All machines of a cluster are lost while a stream runs: a new cluster from a backup continues it, row for row."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-23")]


class Drill:
    """A cluster whose storage and savepoints are on other machines than its processes.

    ``zookeepers``: how many servers have its job store, on machines of their own with their data at ``servers``; 0: it
    is a file of the only JobManager.
    """

    def __init__(self, shell: Shell, place: Path, servers: Path, zookeepers: int) -> None:
        self.cluster = Cluster(shell)
        self.shell = shell
        self._servers = servers
        self._zookeepers = zookeepers
        self._ensembles: list[Ensemble] = []
        self.storage = place / "storage"
        self.savepoints = place / "savepoints"
        self.backup = place / "backup.tar"

    def found_ensemble(self) -> None:
        """Start ZooKeeper servers that know nothing."""
        if self._zookeepers:
            self._ensembles.append(Ensemble(self._servers / str(len(self._ensembles)), self._zookeepers))
            asyncio.run(self._ensembles[-1].start())

    def lose_ensemble(self) -> None:
        for ensemble in self._ensembles:
            ensemble.stop()

    def settings(self) -> tuple[str, ...]:
        settings = {
            "high-availability.storageDir": str(self.storage),
            "execution.checkpointing.savepoint-dir": str(self.savepoints),
        }
        if self._ensembles:
            settings |= {"high-availability.type": "zookeeper", "high-availability.cluster-id": "drill"}
            settings["high-availability.zookeeper.quorum"] = self._ensembles[-1].hosts
        return tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))

    def up(self) -> None:
        shape = ("--task-managers", "1", "--slots", "1", "--memory", "4g")
        self.cluster.up(*shape, *QUICK, *self.settings())

    def lose_all_machines(self) -> None:
        """Every process, and every directory that is not on the storage."""
        self.shell.traces.kill()
        until(lambda: not self.shell.traces.processes(), "nothing of the old cluster is alive")
        self.lose_ensemble()
        shutil.rmtree(self.shell.state)
        shutil.rmtree(self.shell.traces.temporary)
        self.shell.traces.temporary.mkdir()


@pytest.fixture(params=[0, 3], ids=["file", "zookeeper"])
def drill(
    shell: Shell,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Drill]:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:-UsePerfData")  # servers that are killed leave no file of that
    drill = Drill(shell, tmp_path, tmp_path_factory.mktemp("servers"), request.param)
    try:
        drill.found_ensemble()
        drill.up()
        yield drill
        drill.cluster.cancel_all()
    finally:
        try:
            drill.cluster.close()
        finally:
            drill.lose_ensemble()


@pytest.mark.parametrize("survives", [True, False], ids=["storage-survives", "storage-is-lost"])
def test_a_stream_continues_in_a_new_cluster_after_the_loss_of_all_machines(
    drill: Drill, tmp_path: Path, survives: bool
) -> None:
    stream = Stream(tmp_path / "rows")
    script = drill.shell.write("stream.py", SCRIPT)
    job = drill.cluster.submit(script, arguments=(str(stream.place),))
    until(lambda: stream.batches() >= 3, "the stream runs")
    drill.shell.done("savepoint", "create", job)
    drill.shell.done("backup", "create", "--with-keys", *drill.settings(), str(drill.backup))
    drill.shell.done("backup", "verify", *drill.settings(), str(drill.backup))
    backed_up = stream.batches()
    until(lambda: stream.batches() >= backed_up + 2, "batches are committed after the backup")

    drill.lose_all_machines()
    drill.found_ensemble()
    before = stream.batches()
    if not survives:
        shutil.rmtree(drill.storage)
    refused = drill.shell.run("backup", "restore", *drill.settings(), str(drill.backup))
    assert refused.code != 0
    assert "nothing is restored" in refused.err
    told = drill.shell.done("backup", "restore", "--yes", *drill.settings(), str(drill.backup)).out
    assert ("its checkpoints" if survives else f"savepoint {drill.savepoints}") in told
    drill.up()

    continued = drill.cluster.wait_for(job, lambda job: job.state is JobStatus.RUNNING, "its next attempt runs")
    assert continued.emberkeep.attempt > 1000
    until(lambda: stream.batches() >= before + 2, lambda: drill.cluster.story(job))
    stream.finish()
    drill.cluster.wait_for_end(job)
    if survives:
        stream.check()
    else:
        stream.check_rows()
    assert len(stream.drivers()) == 2
    again = drill.shell.run("backup", "restore", "--yes", *drill.settings(), str(drill.backup))
    assert again.code != 0, "a cluster is there"

"""All machines of a cluster are lost while a stream runs: a new cluster from a backup continues it, row for row."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-23")]


class Drill:
    """A cluster whose storage and savepoints are on other machines than its processes."""

    def __init__(self, shell: Shell, place: Path) -> None:
        self.cluster = Cluster(shell)
        self.shell = shell
        self.storage = place / "storage"
        self.savepoints = place / "savepoints"
        self.backup = place / "backup.tar"

    def settings(self) -> tuple[str, ...]:
        return (
            *("-D", f"high-availability.storageDir={self.storage}"),
            *("-D", f"execution.checkpointing.savepoint-dir={self.savepoints}"),
        )

    def up(self) -> None:
        shape = ("--task-managers", "1", "--slots", "1", "--memory", "4g")
        self.cluster.up(*shape, *QUICK, *self.settings())

    def lose_all_machines(self) -> None:
        """Every process, and every directory that is not on the storage."""
        self.shell.traces.kill()
        until(lambda: not self.shell.traces.processes(), "nothing of the old cluster is alive")
        shutil.rmtree(self.shell.state)
        shutil.rmtree(self.shell.traces.temporary)
        self.shell.traces.temporary.mkdir()


@pytest.fixture
def drill(shell: Shell, tmp_path: Path) -> Iterator[Drill]:
    drill = Drill(shell, tmp_path)
    drill.up()
    yield drill
    drill.cluster.cancel_all()
    drill.cluster.close()


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

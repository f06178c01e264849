"""All machines of a cluster are lost while a stream runs: a new cluster from a backup continues it, row for row."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.conditions import until
from tests.integration.storage.drill import Drill
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-23")]


@pytest.mark.parametrize("survives", [True, False], ids=["storage-survives", "storage-is-lost"])
def test_a_stream_continues_in_a_new_cluster_after_the_loss_of_all_machines(
    drill: Drill, tmp_path: Path, survives: bool
) -> None:
    drill.up()
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

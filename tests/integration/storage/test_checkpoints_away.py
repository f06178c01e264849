"""The file system of a job's checkpoints is away when its driver is started again: nothing begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

QUICK_RESTART = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")

# Arguments: the checkpoint, and a file that ends it once it is there.
STREAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
writer = rates.writeStream.queryName("rates").format("noop").trigger(processingTime="300 milliseconds")
query = writer.start(checkpointLocation=sys.argv[1])
while not Path(sys.argv[2]).exists() and not query.awaitTermination(0.3):
    pass
query.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up("--task-managers", "1", "--slots", "1", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


@pytest.mark.req("SAFE-1")
def test_a_query_waits_for_its_checkpoint_and_goes_on_from_it(cluster: Cluster) -> None:
    cluster.shell.write("stream.py", STREAM)
    mount, elsewhere = cluster.shell.directory / "mount", cluster.shell.directory / "elsewhere"
    mount.mkdir()
    checkpoint, finish = mount / "of-the-job" / "checkpoint", cluster.shell.directory / "finish"
    job_id = cluster.submit("stream.py", *QUICK_RESTART, arguments=(str(checkpoint), str(finish)))

    def committed() -> int:
        return max((int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()), default=-1)

    def known() -> bool:
        newest = cluster.ask(lambda client: client.checkpoints(job_id)).latest.completed
        return newest is not None and newest.id >= 2

    until(known, lambda: cluster.story(job_id))
    kill_process(cluster.wait_for_driver(job_id))
    mount.rename(elsewhere)
    mount.mkdir()
    before = max(int(path.name) for path in (elsewhere / "of-the-job/checkpoint/commits").glob("[0-9]*"))
    cluster.wait_for_driver(job_id, attempt=2)
    waits = f"waiting for the job's checkpoints: {checkpoint} does not exist"
    until(lambda: waits in cluster.output(job_id, "driver-stderr", 2), lambda: cluster.story(job_id))
    assert list(mount.iterdir()) == [], "nothing is made in its place"

    mount.rmdir()
    elsewhere.rename(mount)
    until(lambda: committed() > before + 1, lambda: cluster.story(job_id))
    finish.touch()
    assert cluster.wait_for_end(job_id).emberkeep.attempt == 2

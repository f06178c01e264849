"""The shared storage is away for a while, as an NFS mount may be: no job ends by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = pytest.mark.integration

# Without Spark. Argument: a directory. Runs until `end` is there, and appends to a file of its own process meanwhile.
PLAIN = """
import os, sys, time
from pathlib import Path

place = Path(sys.argv[1])
while not (place / "end").exists():
    with (place / f"{os.getpid()}.count").open("a") as file:
        file.write(".")
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up("--task-managers", "1", "--slots", "1", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


def place_of(cluster: Cluster, name: str) -> Path:
    place = cluster.shell.directory / name
    place.mkdir()
    return place


@pytest.mark.req("SAFE-1")
@pytest.mark.long
def test_a_job_manager_that_starts_without_its_storage_ends_no_job(cluster: Cluster) -> None:
    cluster.shell.write("plain.py", PLAIN)
    places = [place_of(cluster, name) for name in ("goes-on", "ends-meanwhile", "is-canceled")]
    jobs = [cluster.submit("plain.py", arguments=(str(place),)) for place in places]
    goes_on, ends_meanwhile, is_canceled = jobs
    pids = [cluster.wait_for_driver(job) for job in jobs]

    storage, elsewhere = cluster.shell.state / "storage", cluster.shell.state / "elsewhere"
    cluster.kill("jobmanager")
    storage.rename(elsewhere)
    cluster.up()

    for job in jobs:
        waiting = cluster.wait_for(job, lambda job: job.emberkeep.waiting, "it waits for its graph").emberkeep.waiting
        assert waiting.startswith(f"its job graph: {storage}/graphs/")
        assert "cannot be read now" in waiting
    assert "cannot be read now" in cluster.shell.done("list").out
    assert "cannot be read now" in cluster.shell.done("info", goes_on).out
    assert "emberkeep_num_unreadable_jobs 3.0" in cluster.metrics()
    assert [cluster.wait_for_driver(job) for job in jobs] == pids, "their JobMasters are let in again"

    cluster.cancel(is_canceled)
    cluster.wait_for_end(is_canceled, JobStatus.CANCELED)
    (places[1] / "end").touch()
    until(lambda: not Path(f"/proc/{pids[1]}").exists(), "the script ends")
    count = places[0] / f"{pids[0]}.count"
    before = count.stat().st_size
    until(lambda: count.stat().st_size > before, "the other one goes on")
    assert cluster.job(ends_meanwhile).state is JobStatus.RUNNING, "nothing is decided about it"

    assert not storage.exists(), "nobody has made another one in its place"
    elsewhere.rename(storage)
    assert cluster.wait_for_end(ends_meanwhile).emberkeep.attempt == 1
    cluster.wait_for(goes_on, lambda job: not job.emberkeep.waiting, "its graph is read again")
    assert cluster.wait_for_driver(goes_on) == pids[0]
    (places[0] / "end").touch()
    assert cluster.wait_for_end(goes_on).name == "plain.py"
    assert {path.name for path in places[0].iterdir()} == {"end", count.name}, "no other process has run it"

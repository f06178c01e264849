"""What lies in a storage is deleted only by the cluster that it belongs to, and only where its job store says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.live_files import files_below

pytestmark = pytest.mark.integration

WAITING = """
import pathlib, sys, time
print("waits", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


class Site:
    """Users with a state directory each, and one storage."""

    def __init__(self, directory: Path, class_archives: Path) -> None:
        self.storage = directory / "storage"
        self.go_on = directory / "go-on"
        self.clusters = [Cluster(Shell(directory / name, class_archives)) for name in ("one", "two")]
        for cluster in self.clusters:
            cluster.shell.write("waiting.py", WAITING)
            cluster.shell.write("plain.py", "print('done', flush=True)\n")
        delays = ("unknown-delay=1s", "ended-delay=1s")
        self.options = (
            *("-D", f"high-availability.storageDir={self.storage}", "-D", "blob.retention.interval=1s"),
            *(word for delay in delays for word in ("-D", f"high-availability.storage.{delay}")),
        )

    def up(self, cluster: Cluster, *words: str) -> None:
        cluster.up("--slots", "1", *QUICK, *self.options, *words)

    def waiting_job(self, cluster: Cluster) -> JobId:
        """A job that runs, and has what a streaming query keeps in the storage."""
        job_id = cluster.submit("waiting.py", arguments=(str(self.go_on),))
        cluster.wait_for_driver(job_id)
        checkpoint = self.storage / "checkpoints" / job_id / "query"
        checkpoint.mkdir(parents=True)
        (checkpoint / "metadata").write_text("{}")
        return job_id

    def data(self) -> set[Path]:
        """Everything that jobs have in the storage."""
        kinds = (self.storage / kind for kind in ("blobs", "checkpoints", "graphs"))
        return {path for path in files_below(*kinds) if path.name != OWNER_FILE}


@pytest.fixture
def site(tmp_path: Path, class_archive: Path) -> Iterator[Site]:
    site = Site(tmp_path, class_archive.parent)
    try:
        yield site
    finally:
        for cluster in site.clusters:
            cluster.close()


@pytest.mark.req("SAFE-5")
@pytest.mark.long
def test_a_second_cluster_and_a_run_leave_the_first_ones_data_alone(site: Site) -> None:
    first, second = site.clusters
    site.up(first)
    job_id = site.waiting_job(first)
    first.shell.done("cluster", "down")
    before = site.data()
    assert {path.relative_to(site.storage).parts[0] for path in before} == {"blobs", "checkpoints", "graphs"}

    refused = second.shell.run("cluster", "up", "--slots", "1", *QUICK, *site.options)
    assert refused.code != 0, refused
    assert f"{site.storage} is storage of cluster" in refused.err
    second.shell.done("cluster", "down")
    for shell in (second.shell, first.shell):
        assert "done" in shell.done("run", *site.options, "plain.py").out
    assert site.data() == before
    assert not (site.storage / "runs").exists()

    site.up(first)
    first.wait_for_driver(job_id, attempt=2)
    site.go_on.touch()
    first.wait_for_end(job_id)
    until(lambda: not site.data(), lambda: f"what is left of a job that has ended: {site.data()}")


@pytest.mark.req("SAFE-6", "SAFE-7")
@pytest.mark.long
def test_an_emptied_job_store_deletes_nothing_until_a_person_says_so(site: Site) -> None:
    cluster, shell = site.clusters[0], site.clusters[0].shell
    site.up(cluster)
    job_id = site.waiting_job(cluster)
    shell.done("cluster", "down")
    before = site.data()
    for path in (shell.state / "jobmanager").glob("jobs.sqlite*"):
        path.unlink()
    # The task manager could not tell the lost store how the job's driver has ended.
    site.up(cluster, "-D", "taskmanager.adopt-leader=true")

    def unsettled() -> bool:
        found = shell.run("storage", "status", "-o", "json")
        return found.code == 1 and job_id in {each["jobid"] for each in json.loads(found.out)["data"]}

    until(unsettled, "the storage's status tells of data of an unknown job")
    other = cluster.submit("plain.py")
    cluster.wait_for_end(other)  # the staged clean-up goes on for what this job store knows
    assert "was used with another job store" in shell.done("cluster", "status").out
    refused = shell.run("storage", "purge")
    assert refused.code != 0
    assert "--yes" in refused.err
    shell.done("cluster", "down")  # an orderly end deletes nothing of it either
    site.up(cluster)
    assert before <= site.data()

    shell.done("storage", "purge", "--yes")
    until(lambda: not before & site.data(), lambda: f"left after the purge: {before & site.data()}")
    assert shell.run("storage", "status").code == 0

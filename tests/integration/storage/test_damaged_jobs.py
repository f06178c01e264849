"""What is left of a job whose graph was damaged is kept for people, and goes after its period and a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = pytest.mark.integration

WAITING = "import time\nprint('waits', flush=True)\ntime.sleep(3600)\n"


@pytest.mark.req("SAFE-3")
@pytest.mark.long
def test_a_damaged_graph_is_kept_and_shown_and_goes_after_a_warning(tmp_path: Path, class_archive: Path) -> None:
    cluster = Cluster(Shell(tmp_path / "one", class_archive.parent))
    shell, storage = cluster.shell, tmp_path / "storage"
    shell.write("waiting.py", WAITING)
    options = ("--slots", "1", *QUICK, "-D", f"high-availability.storageDir={storage}")

    def damaged() -> list[str]:
        found = json.loads(shell.done("storage", "status", "-o", "json").out)
        return [each["jobid"] for each in found["data"] if each["kind"] == "damaged"]

    try:
        cluster.up(*options)
        job_id = cluster.submit("waiting.py")
        cluster.wait_for_driver(job_id)
        shell.done("cluster", "down")
        (graph,) = storage.rglob(f"{job_id}*.graph")
        graph.write_bytes(graph.read_bytes()[:-10])

        cluster.up(*options)
        cluster.wait_for_end(job_id, JobStatus.FAILED)
        assert damaged() == [job_id]
        assert graph.exists()
        shell.done("cluster", "down")

        cluster.up(*options, "-D", "high-availability.storage.damaged-delay=10s")
        until(lambda: not damaged(), "what is left of the damaged job is removed")
        assert not graph.exists()
        lines = (shell.state / "jobmanager" / "logs" / "jobmanager.log").read_text().splitlines()
        warnings = [line for line in lines if "will be removed soon" in line]
        assert len(warnings) == 1
        assert all(part in warnings[0] for part in (job_id, str(graph), "damaged-delay"))
    finally:
        cluster.close()

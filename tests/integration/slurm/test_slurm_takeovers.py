"""Several JobManagers with Slurm: the next leader knows the Slurm jobs of the one before, as only Slurm tells it."""

from __future__ import annotations

import os
import signal

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster
from tests.integration.conditions import until
from tests.integration.slurm.real_slurm import RealSlurm, why_impossible
from tests.integration.slurm.test_slurm_task_managers import wait_for_batches
from tests.integration.streams import SCRIPT, Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
    pytest.mark.req("BLK-9"),
]

# Several JobManagers of a local cluster are at loopback addresses, which nodes of this Slurm reach.
SEVERAL = ("--ha", "-D", "rest.address=127.0.0.1", "-D", "rest.bind-address=127.0.0.1")


def kill_leader(cluster: Cluster) -> None:
    """SIGKILL to the leader; return once the other JobManager leads."""
    address, leader = cluster.leader()
    os.kill(leader.identity.pid, signal.SIGKILL)
    until(lambda: cluster.leader()[0] != address, "the other JobManager leads")


@pytest.mark.parametrize("cluster", [SEVERAL], indirect=True)
def test_the_next_leader_goes_on_with_the_slurm_jobs_of_the_one_before(cluster: Cluster, slurm: RealSlurm) -> None:
    # No node is free: what one leader has requested for the driver waits in Slurm, and is the next one's.
    slurm.close_partition()
    rows = Stream(cluster.shell.work / "rows")
    cluster.shell.write("counted.py", SCRIPT)
    job_id = cluster.submit("counted.py", arguments=(str(rows.place),), executors=2)
    requested = until(slurm.jobs, slurm.story)
    kill_leader(cluster)
    cluster.up()  # the killed one is a standby from now on
    slurm.wait_for_questions(3)
    assert slurm.jobs() == requested == {"tm-0": (1, "PENDING", "")}
    slurm.open_partition()
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(rows, 3, slurm)

    # Jobs that run: none is cancelled, and none is submitted for what runs already.
    running = slurm.jobs()
    assert {name: (number, state) for name, (number, state, _) in running.items()} == {
        "tm-0": (1, "RUNNING"),
        "tm-1": (2, "RUNNING"),
    }
    kill_leader(cluster)
    cluster.up()
    wait_for_batches(rows, rows.batches() + 3, slurm)
    cluster.wait_for_executors(job_id, 2)
    slurm.wait_for_questions(3)
    assert slurm.jobs() == running
    assert slurm.submitted() == len(running)

    # Those that are idle end by themselves.
    rows.finish()
    assert cluster.wait_for_end(job_id, JobStatus.FINISHED).emberkeep.attempt == 1
    rows.check()
    assert len(rows.drivers()) == 1
    until(lambda: slurm.jobs() == {}, slurm.story)
    assert slurm.submitted() == len(running)

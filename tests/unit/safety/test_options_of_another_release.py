"""A job that runs with options which only another release knows goes on under this one."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.jobs.model import JobStatus
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore


@pytest.mark.req("SAFE-14")
def test_a_running_job_with_an_option_of_another_release_goes_on() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        job_id = graph(1).job_id
        async with cluster.leading():
            await cluster.add()
            await cluster.run_job(1)
            await cluster.reaches(job_id, JobStatus.RUNNING)
        newer = msgspec.structs.replace(graph(1), options={"job.of-a-newer-release": "1"})
        store.disk.jobs[job_id].graph = msgspec.json.encode(newer)
        async with cluster.leading():
            await cluster.next_jobmaster(job_id, 1)
            await cluster.reaches(job_id, JobStatus.RUNNING)
            assert not store.recorded
            assert not cluster.stops()

    in_virtual_time(scenario)

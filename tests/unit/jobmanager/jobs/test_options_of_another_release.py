"""Jobs with options which only another release knows: what runs goes on, and nothing is started without them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from emberkeep.base.configuration.options.restarts import FIXED_DELAY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.admission import job_configuration, usable_configuration
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobGraph, JobStatus
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
NEWER = {"job.of-a-newer-release": "1"}
NOTE = "a release that takes its options: job.of-a-newer-release is not a configuration key"


def change_options(store: FailingStore, **options: str) -> JobId:
    """The stored job has these options now, as another release has accepted them."""
    job: JobGraph = msgspec.structs.replace(graph(1), options=options)
    store.disk.jobs[job.job_id].graph = msgspec.json.encode(job)
    return job.job_id


async def waits(cluster: SmallCluster, job_id: JobId, next_attempt: int) -> None:
    await asyncio.sleep(3600.0)
    view = await cluster.view(job_id)
    assert NOTE in view.waiting
    assert not view.status.is_globally_terminal
    assert not cluster.host(job_id, next_attempt)


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
        change_options(store, **NEWER)
        async with cluster.leading():
            await cluster.next_jobmaster(job_id, 1)
            await cluster.reaches(job_id, JobStatus.RUNNING)
            assert not store.recorded
            assert not cluster.stops()

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-14")
@pytest.mark.parametrize("is_read_late", [False, True])
def test_the_first_attempt_waits_for_the_release_that_knows_the_option(is_read_late: bool) -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
        job_id = change_options(store, **NEWER)
        if is_read_late:
            store.disk.away = True
        async with cluster.leading():
            await cluster.add()
            store.disk.away = False
            await waits(cluster, job_id, 1)
            assert not store.recorded
        change_options(store)
        async with cluster.leading():
            await cluster.next_jobmaster(job_id, 1)
            await cluster.reaches(job_id, JobStatus.RUNNING)

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-14")
def test_the_next_attempt_waits_for_the_release_that_knows_the_option() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            await cluster.run_job(1)
        job_id = change_options(store, **NEWER)
        async with cluster.leading() as service:
            await cluster.next_jobmaster(job_id, 1)
            await cluster.reaches(job_id, JobStatus.RUNNING)
            cluster.task_managers[0].exits(job_id, 1, KILLED)
            await cluster.holds(lambda: not cluster.host(job_id, 1))
            await waits(cluster, job_id, 2)
            await service.gateway.cancel(job_id)
            await cluster.reaches(job_id, JobStatus.CANCELED)

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-14")
def test_the_options_that_are_known_count() -> None:
    job = msgspec.structs.replace(graph(1), options={**NEWER, "restart-strategy.type": "none"})
    configuration, lacks = usable_configuration(Configuration(), job)
    assert configuration.texts() == {"restart-strategy.type": "none"}
    assert lacks.startswith(NOTE)


@pytest.mark.req("SAFE-14")
def test_a_duration_that_only_earlier_releases_took_counts_as_the_longest() -> None:
    key = "restart-strategy.fixed-delay.delay"
    job = msgspec.structs.replace(graph(1), options={key: "999999 d", "restart-strategy.type": "fixed-delay"})
    configuration, lacks = usable_configuration(Configuration(), job)
    assert (configuration[FIXED_DELAY], lacks) == (36_500 * 86_400.0, "")
    with pytest.raises(InvalidInput, match="expected at most 36500d"):
        job_configuration(Configuration(), job)

"""Pointers to checkpoints, from the JobMaster's report to the store, the next attempt and the next leader."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from emberkeep.base.errors import Fatal, RetryLater, UnknownOutcome
from emberkeep.jobmanager.jobs.checkpoint_records import PAUSE
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from tests.support.contracts.job_store import batch, savepoint
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

SUCCESS = AttemptOutcome(exit_code=0)
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
JOB = graph(1).job_id


def stored(store: FailingStore) -> JobPointers:
    data = store.disk.jobs[JOB].pointers
    return msgspec.json.decode(data, type=JobPointers) if data else JobPointers()


pytestmark = pytest.mark.req("HA-8")


def test_reports_are_stored_shown_and_given_to_the_next_attempt() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            task_manager = await cluster.add()
            master = await cluster.run_job()
            await master.beat(checkpoints=(batch(3), batch(7, 2)))
            await cluster.holds(lambda: stored(store).queries == (batch(3), batch(7, 2)))
            await asyncio.sleep(1.0)
            assert (await cluster.view(JOB)).pointers.attempt == 1
            assert task_manager.started[0].checkpoints == ()
            task_manager.exits(JOB, 1, KILLED)
            await cluster.next_jobmaster(JOB, 2)
            assert task_manager.started[-1].checkpoints == (batch(3), batch(7, 2))

    in_virtual_time(scenario)


def test_the_next_leader_goes_on_with_them_until_the_job_has_ended() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            await master.beat(checkpoints=(batch(3),))
            await cluster.holds(lambda: stored(store).queries)
            await store._store.record_checkpoints(JOB, 1, (), (savepoint(1),))
        async with cluster.leading() as service:
            expected = JobPointers(attempt=1, queries=(batch(3),), savepoints=(savepoint(1),))
            assert (await cluster.view(JOB)).pointers == expected
            master.service = service
            await master.register()
            await master.ends(SUCCESS)
            await cluster.reaches(JOB, JobStatus.FINISHED)
            assert (await cluster.view(JOB)).pointers.savepoints == (savepoint(1),)
        async with cluster.leading():
            pointers = (await cluster.view(JOB)).pointers
            assert (pointers.queries, pointers.savepoints) == ((), (savepoint(1),))

    in_virtual_time(scenario)


def test_a_job_with_short_batches_is_written_at_most_once_in_a_second() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            began = cluster.loop.time()
            for number in range(300):
                await master.beat(checkpoints=(batch(number),))
                await asyncio.sleep(0.02)
            await cluster.holds(lambda: stored(store).queries == (batch(299),))
            assert store.calls["record_checkpoints"] <= (cluster.loop.time() - began) / PAUSE + 1

    in_virtual_time(scenario)


def test_a_store_that_is_away_gets_the_newest_report_when_it_is_back() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            store.before["record_checkpoints"] = [RetryLater("away"), RetryLater("away"), Fatal("no space")]
            store.after["record_checkpoints"] = [UnknownOutcome("no answer")]
            for number in range(40):
                await master.beat(checkpoints=(batch(number),))
                await asyncio.sleep(0.5)
            await cluster.holds(lambda: stored(store).queries == (batch(39),))

    in_virtual_time(scenario)


@pytest.mark.req("HA-7")
def test_a_report_that_is_overtaken_by_the_next_attempt_is_dropped() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            task_manager = await cluster.add()
            master = await cluster.run_job()
            store.before["record_checkpoints"] = [RetryLater("away")] * 4
            await master.beat(checkpoints=(batch(3),))
            task_manager.exits(JOB, 1, KILLED)
            second = await cluster.next_jobmaster(JOB, 2)
            for _ in range(20):
                await second.beat()
                await asyncio.sleep(PAUSE)
            assert not store.before["record_checkpoints"]
            assert stored(store) == JobPointers()
            await second.beat(checkpoints=(batch(1),))
            await cluster.holds(lambda: stored(store) == JobPointers(attempt=2, queries=(batch(1),)))

    in_virtual_time(scenario)


def test_a_job_that_ends_takes_its_waiting_report_with_it() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            store.before["record_checkpoints"] = [RetryLater("away")] * 3
            await master.beat(checkpoints=(batch(3),))
            await master.ends(SUCCESS)
            await cluster.reaches(JOB, JobStatus.FINISHED)
            await asyncio.sleep(10 * PAUSE)
            assert JOB not in store.handles

    in_virtual_time(scenario)

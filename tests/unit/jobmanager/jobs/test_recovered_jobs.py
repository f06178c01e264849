"""Jobs that a leader finds in its store: with a graph that it cannot read now, or older than what drivers know."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import structlog

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.ports import StoredJob, Trouble
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState
from tests.support.contracts.job_store import batch
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB, OTHER = graph(1).job_id, graph(2).job_id
PROBLEM = "/graphs/1 cannot be read now"


class PartlyAwayStore(FailingStore):
    """``away``: jobs whose graphs cannot be read now."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[JobId] = set()

    def _seen(self, stored: StoredJob) -> StoredJob:
        if stored.job_id not in self.away:
            return stored
        return msgspec.structs.replace(stored, graph=None, trouble=Trouble.AWAY, problem=PROBLEM)

    async def recover(self) -> list[StoredJob]:
        return [self._seen(stored) for stored in await super().recover()]

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        stored = await super().recover_job(job_id)
        return None if stored is None else self._seen(stored)


@pytest.mark.req("SAFE-1")
def test_only_a_job_whose_graph_cannot_be_read_waits_for_it() -> None:
    async def scenario() -> None:
        store = PartlyAwayStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            for number in (1, 2):
                await service.gateway.submit(graph(number))
        store.away = {JOB}
        async with cluster.leading():
            away, other = await cluster.view(JOB), await cluster.view(OTHER)
            assert (away.unreadable, away.waiting) == (True, f"its job graph: {PROBLEM}")
            assert (other.unreadable, other.name) == (False, "job 2")
            await cluster.add()
            await cluster.next_jobmaster(OTHER, 1)
            assert (await cluster.view(JOB)).status is JobStatus.CREATED
            store.away.clear()
            await cluster.next_jobmaster(JOB, 1)

    in_virtual_time(scenario)


def test_a_job_whose_graph_is_read_later_has_its_own_priority_gang_and_namespace() -> None:
    async def scenario() -> None:
        store = PartlyAwayStore()
        cluster = SmallCluster(store)
        urgent = graph(1, options={"job.priority": "high", "job.gang": "true"})
        async with cluster.leading() as service:
            await service.gateway.submit(msgspec.structs.replace(urgent, namespace="team-a"))
        store.away = {JOB}
        async with cluster.leading() as service:
            accounts = service._seat.leader.resources.needs._accounts.by_id
            await cluster.holds(lambda: JOB in accounts)
            assert not accounts[JOB].is_described
            store.away.clear()
            await cluster.add()
            master = await cluster.next_jobmaster(JOB, 1)
            view = await cluster.view(JOB)
            assert (view.priority, view.gang) == (100, True)
            await master.beat(2)
            account = accounts[JOB]
            assert (account.is_described, account.priority, account.gang, account.namespace) == (
                True,
                100,
                True,
                "team-a",
            )

    in_virtual_time(scenario)


class ForgedStore(PartlyAwayStore):
    """The records of jobs that are away are not trusted either, as if another program had written them."""

    def _seen(self, stored: StoredJob) -> StoredJob:
        if stored.job_id not in self.away:
            return stored
        return StoredJob(job_id=stored.job_id, attempt=0, graph=None, trouble=Trouble.AWAY, problem=PROBLEM)


@pytest.mark.req("SAFE-1")
def test_a_job_whose_records_are_trusted_later_continues_from_all_of_them() -> None:
    async def scenario() -> None:
        store = ForgedStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            task_manager = await cluster.add()
            master = await cluster.run_job()
            await master.beat(checkpoints=(batch(3),))
            await cluster.holds(lambda: store.disk.jobs[JOB].pointers)
        store.away = {JOB}
        async with cluster.leading():
            task_manager.exits(JOB, 1, AttemptOutcome(exit_code=137, kind=FailureKind.LOST))
            store.away.clear()
            await cluster.next_jobmaster(JOB, 2)
            assert task_manager.started[-1].checkpoints == (batch(3),)

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-1")
def test_a_leader_does_not_resign_over_an_attempt_that_it_could_not_trust_at_first() -> None:
    """It took the job for one without any attempt, and the store refused to record the first one again."""

    async def scenario() -> None:
        store = ForgedStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            await cluster.run_job()
        cluster.task_managers.clear()
        store.away = {JOB}
        async with cluster.leading() as service:
            await cluster.add("tm-2")
            store.away.clear()
            await cluster.next_jobmaster(JOB, 2)
            assert service.gateway.epoch() == 2

    in_virtual_time(scenario)


def test_what_was_recorded_of_a_job_holds_once_its_records_are_trusted() -> None:
    async def scenario() -> None:
        store = ForgedStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
            await service.gateway.submit(graph(2))
            await cluster.add()
            await cluster.next_jobmaster(OTHER, 1)
            wanted = ProcedureRequest(
                trigger_id="1" * 32, procedure=Procedure.SAVEPOINT, target_directory="/savepoints"
            )
            await service.gateway.request_procedure(OTHER, wanted)
            await service.gateway.cancel(JOB)
        cluster.task_managers.clear()
        store.away = {JOB, OTHER}
        async with cluster.leading() as service:
            assert (await cluster.view(JOB)).status is not JobStatus.CANCELED
            store.away.clear()
            await cluster.reaches(JOB, JobStatus.CANCELED)
            await cluster.holds(lambda: store.calls["record_attempt"] >= 2)
            assert not (await service.gateway.procedure(OTHER, wanted.trigger_id)).is_over

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-6")
def test_a_newer_attempt_than_the_stores_is_recorded_once_and_continues() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add("tm-1")
            await cluster.run_job()
            other = await cluster.add("tm-2")
            newer = FakeJobMaster(service, JOB, 5, "tm-2")
            other.drivers[JOB, 5] = DriverReport(job_id=JOB, attempt=5, state=ProcessState.RUNNING, pid=7)
            await other.register()
            await newer.register()
            await asyncio.sleep(10.0)
            view = await cluster.view(JOB)
            assert (view.attempt, view.status, view.waiting) == (5, JobStatus.RUNNING, "")
            assert store.attempts == [(JOB, 1), (JOB, 5)]
            assert store.calls["record_attempt"] == 2

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-6")
def test_a_task_manager_with_a_newer_attempt_may_be_the_one_that_has_a_place_for_the_job() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
            await asyncio.sleep(5.0)  # no task manager is there yet
            first = FakeTaskManager(service, "tm-1")
            first.drivers[JOB, 5] = DriverReport(job_id=JOB, attempt=5, state=ProcessState.RUNNING, pid=7)
            cluster.network.attach(first.info.address, first)
            cluster.task_managers.append(first)
            await first.register()
            await FakeJobMaster(service, JOB, 5).register()
            await asyncio.sleep(10.0)
            view = await cluster.view(JOB)
            assert (view.attempt, view.status) == (5, JobStatus.RUNNING)
            assert first.started == []

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-6")
def test_the_end_of_an_attempt_that_only_its_driver_knows_is_the_end_of_the_job() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
            await cluster.run_job(1)
            newer = FakeJobMaster(cluster.service, JOB, 2)
            with structlog.testing.capture_logs() as logs:
                with pytest.raises(RetryLater, match="to record attempt 2"):
                    await newer.ends(AttemptOutcome(exit_code=0))
                await asyncio.sleep(1.0)
                await newer.ends(AttemptOutcome(exit_code=0))
            ended = await cluster.view(JOB)
            assert (ended.status, ended.attempt) == (JobStatus.FINISHED, 2)
            await asyncio.sleep(60.0)
            await newer.ends(AttemptOutcome(exit_code=0))  # the reply to its last report was lost
            with pytest.raises(Conflict, match="no attempt 1 that could end"):
                await FakeJobMaster(cluster.service, JOB, 1).ends(AttemptOutcome(exit_code=0))
        told = [entry for entry in logs if "was put back from an older copy" in entry["event"]]
        assert [(entry["job"], entry["attempt"], entry["stored"]) for entry in told] == [(JOB, 2, 1)]

    in_virtual_time(scenario)


def test_a_job_that_has_ended_has_no_requests() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            reports = service._seat.leader.dispatcher.job_masters
            assert await reports.orders(OTHER, None) == (None, "")

    in_virtual_time(scenario)

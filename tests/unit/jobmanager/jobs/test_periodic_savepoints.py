"""Periodic savepoints, as the JobManager's neighbours see them: made, shown, deleted, and out of everybody's way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from emberkeep.base.errors import Conflict, Fatal, InvalidInput, RetryLater
from emberkeep.chronicle.occurrence import What
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from tests.support.simulator.virtual_loop import EPOCH_MS
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, graph
from tests.unit.jobmanager.jobs.test_watches import progress
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
OFTEN = {"execution.savepoint.interval": "2min", "execution.savepoint.retained": "2"}
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
USUAL = frozenset({What.PERIODIC_SAVEPOINT, What.PERIODIC_SAVEPOINT_FAILED, What.SAVEPOINT_RETIRED})


def now_ms() -> int:
    return EPOCH_MS + round(asyncio.get_running_loop().time() * 1000)


@dataclass
class Stream:
    """A streaming job whose driver makes savepoints at once. ``failure``: why it makes none."""

    cluster: SmallCluster
    master: FakeJobMaster
    failure: str = ""
    impossible: bool = False
    asked: tuple[ProcedureRequest, ...] = ()
    ended: ProcedureProgress | None = None

    async def works(self, seconds: float, *, step: float = 2.0, makes: bool = True) -> None:
        """Report at intervals, and make each savepoint that is asked for, unless not ``makes``."""
        for _ in range(round(seconds / step)):
            await asyncio.sleep(step)
            reply = await self.master.beat(queries=(progress(1),), procedure=self.ended)
            request = reply.procedure
            if request is None or request in self.asked:
                continue
            self.asked = (*self.asked, request)
            if makes:
                self.ended = self._end(request)
                await self.master.beat(queries=(progress(1),), procedure=self.ended)

    def _end(self, request: ProcedureRequest) -> ProcedureProgress:
        trigger_id = request.trigger_id
        if self.failure:
            return ProcedureProgress(
                trigger_id=trigger_id, phase=ProcedurePhase.FAILED, failure=self.failure, impossible=self.impossible
            )
        return ProcedureProgress(
            trigger_id=trigger_id,
            phase=ProcedurePhase.COMPLETED,
            ended_ms=now_ms(),
            savepoint=f"{request.target_directory}/{trigger_id}",
            manifest_sha256="ab" * 32,
        )

    def forget(self) -> None:
        """Take what is asked for as new."""
        self.asked = ()

    async def savepoints(self) -> tuple[SavepointPointer, ...]:
        return (await self.cluster.view(JOB)).pointers.savepoints

    def events(self, types: frozenset[What] = USUAL) -> list[str]:
        return [each.what for each in self.cluster.chronicle.stream(JOB) if each.what in types]


async def stream(cluster: SmallCluster, **more: str) -> Stream:
    await cluster.add()
    return Stream(cluster, await cluster.run_job(options={**OFTEN, **more}))


def test_savepoints_are_made_shown_noted_and_deleted() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            job = await stream(cluster)
            await job.works(480.0)
            assert [(request.procedure, request.periodic) for request in job.asked] == [(Procedure.SAVEPOINT, True)] * 4
            assert {request.target_directory for request in job.asked} == {"/default-savepoints"}
            paths = [f"/default-savepoints/{request.trigger_id}" for request in job.asked]
            assert [(each.path, each.periodic, each.retired_ms) for each in await job.savepoints()] == [
                (path, True, 0) for path in paths[2:]
            ]
            assert cluster.savepoints.deleted == paths[:2]
            view = (await cluster.view(JOB)).periodic
            assert view is not None
            assert (view.kept, view.retiring, view.failures, view.problem) == (2, 0, 0, "")
            assert 0 < view.due_ms - now_ms() <= 120_000
            made, retired = What.PERIODIC_SAVEPOINT, What.SAVEPOINT_RETIRED
            assert job.events() == [made, made, made, retired, made, retired]

    in_virtual_time(scenario)


def test_a_job_whose_savepoints_would_have_a_limit_beyond_all_times_is_refused() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            with pytest.raises(InvalidInput, match="expected at most 36500d"):
                await service.gateway.submit(graph(1, options={**OFTEN, "execution.stop.batch-timeout": "9" * 20}))

    in_virtual_time(scenario)


def test_neither_a_new_leader_nor_a_restarted_driver_makes_one_more() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            job = await stream(cluster)
            await job.works(60.0)
            assert len(job.asked) == 1, "it was submitted long ago"
        for attempt in (2, 3):
            async with cluster.leading() as service:
                job.master.service = service
                await job.master.register()
                await job.works(6.0)
                cluster.task_managers[0].exits(JOB, attempt - 1, KILLED)
                await asyncio.sleep(5.0)
                job.master = await cluster.next_jobmaster(JOB, attempt)
                job.ended = None
                await job.works(20.0)
                assert len(job.asked) == 1
        async with cluster.leading() as service:
            job.master.service = service
            await job.master.register()
            await job.works(120.0)
        assert len(job.asked) == 2

    in_virtual_time(scenario)


def test_a_savepoint_under_way_survives_its_leader_and_is_not_made_twice() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            job = await stream(cluster)
            await job.works(60.0, makes=False)
            (asked,) = job.asked
        async with cluster.leading() as service:
            job.master.service = service
            await job.master.register()
            job.forget()
            await job.works(100.0)
            assert job.asked == (asked,)
            assert [each.trigger_id for each in await job.savepoints()] == [asked.trigger_id]
            assert job.events() == [What.PERIODIC_SAVEPOINT]

    in_virtual_time(scenario)


def test_whoever_asks_for_a_stop_waits_until_a_periodic_savepoint_is_over() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            job = await stream(cluster)
            await job.works(60.0, makes=False)
            stop = ProcedureRequest(trigger_id="5" * 32, procedure=Procedure.SUSPEND, requested_ms=now_ms())
            with pytest.raises(RetryLater, match="a periodic savepoint is being made"):
                await service.gateway.request_procedure(JOB, stop)
            job.forget()
            await job.works(20.0)
            await service.gateway.request_procedure(JOB, stop)
            await job.works(20.0)
            assert [request.procedure for request in job.asked] == [Procedure.SAVEPOINT, Procedure.SUSPEND]
            await job.works(300.0)
            assert len(job.asked) == 2, "a stopped job makes none"

    in_virtual_time(scenario)


def test_a_savepoint_that_another_job_starts_from_is_kept_and_a_retired_one_starts_no_job() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            job = await stream(cluster, **{"execution.savepoint.retained": "1"})
            await job.works(60.0)
            (first,) = await job.savepoints()
            await service.gateway.submit(graph(2, savepoint=f"file://{first.path}/"))
            await job.works(240.0)
            assert (await job.savepoints())[0].path == first.path
            assert first.path not in cluster.savepoints.deleted
            cluster.savepoints.failure = Fatal("access denied")
            await service.gateway.cancel(graph(2).job_id)
            cluster.task_managers[0].exits(graph(2).job_id, 1, KILLED)
            await job.works(30.0)
            assert (await job.savepoints())[0].retired_ms > 0
            with pytest.raises(Conflict, match="is being deleted"):
                await service.gateway.submit(graph(3, savepoint=first.path))
            view = (await cluster.view(JOB)).periodic
            assert view is not None
            assert (view.retiring, view.problem) == (1, "access denied")
            assert job.events(frozenset({What.SAVEPOINT_NOT_RETIRED})) == [What.SAVEPOINT_NOT_RETIRED]
            cluster.savepoints.failure = None
            await job.works(60.0)
            assert first.path in cluster.savepoints.deleted
            assert first.path not in [each.path for each in await job.savepoints()]

    in_virtual_time(scenario)


def test_a_failure_is_noted_and_followed_by_another_try() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            job = await stream(cluster)
            job.failure = "no space left on device"
            await job.works(300.0)
            assert 3 <= len(job.asked) <= 5
            assert job.events() == [What.PERIODIC_SAVEPOINT_FAILED] * len(job.asked)
            job.failure = ""
            await job.works(200.0)
            assert job.events()[-1] == What.PERIODIC_SAVEPOINT

    in_virtual_time(scenario)


def test_a_job_that_can_make_no_savepoint_is_told_once() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            job = await stream(cluster)
            job.failure, job.impossible = "the query runs as ContinuousExecution, not in micro-batches", True
            await job.works(600.0)
            assert len(job.asked) == 1
            assert job.events(USUAL | {What.NO_PERIODIC_SAVEPOINTS}) == [What.NO_PERIODIC_SAVEPOINTS]
            view = (await cluster.view(JOB)).periodic
            assert view is not None
            assert view.problem == job.failure

    in_virtual_time(scenario)

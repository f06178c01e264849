"""A JobManager that cannot confirm in its store that it leads: what it answers, and what it orders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.base.errors import Conflict, Fatal, RetryLater
from emberkeep.jobmanager.authority import FRESH, REMINDER_PAUSE
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster
from emberkeep.protocol.messages.task_managers import TaskManagerHeartbeat
from tests.unit.adapters.job_store.test_embedded_store import file_size_limit, opened
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, graph, status
from tests.unit.jobmanager.memory_store import FailingStore

SUCCESS = AttemptOutcome(exit_code=0)
JOB = graph(1).job_id


@pytest.mark.req("SAFE-10")
def test_a_paused_leader_acknowledges_no_end_and_lets_no_script_start() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            service.pause()
            with pytest.raises(RetryLater, match="decides nothing"):
                await master.ends(SUCCESS)
            with pytest.raises(RetryLater, match="decides nothing"):
                await master.register()
            with pytest.raises(RetryLater):
                await cluster.blobs.collect()
            assert (await master.beat()).known, "what it hears it takes note of"
            service.resume()
            assert await cluster.blobs.collect() == 0
            await master.ends(SUCCESS)
            assert (await cluster.view(JOB)).status is JobStatus.FINISHED

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-10")
def test_a_leader_that_is_never_resumed_says_again_and_again_why_nothing_happens() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        with capture_logs() as said:
            async with cluster.leading() as service:
                assert service.problem == ""
                service.pause()
                await asyncio.sleep(3 * REMINDER_PAUSE + 1)
                assert service.problem.startswith("nothing has been decided for 181 s")
                assert "the session with the job store is interrupted" in service.problem
                service.resume()
                assert service.problem == ""
                await asyncio.sleep(3 * REMINDER_PAUSE)
        reminders = [line["reason"] for line in said if line["event"] == "still nothing is decided"]
        assert [reason[:29] for reason in reminders] == 3 * ["nothing has been decided for "]
        confirmed = [line for line in said if line["event"].startswith("the job store has confirmed")]
        assert len(confirmed) == 1

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-10")
def test_a_paused_leader_refuses_nobody_for_good() -> None:
    """Who is refused by Conflict ends itself; who hears that its attempt is over is ended."""

    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            stranger = FakeJobMaster(service, graph(2).job_id, 1)
            await cluster.run_job(1, 1)
            service.pause()
            with pytest.raises(RetryLater):
                await stranger.beat()
            task_manager.exits(graph(2).job_id, 1, SUCCESS)
            report = task_manager.report()
            held = TaskManagerHeartbeat(id=task_manager.info.id, instance=task_manager.info.instance, report=report)
            reply = await service.serve(held)
            assert (reply.acknowledged, reply.stale, reply.ended) == ((), (), ())  # type: ignore[attr-defined]
            service.resume()
            with pytest.raises(Conflict):
                await stranger.beat()
            report = task_manager.report()
            held = TaskManagerHeartbeat(id=task_manager.info.id, instance=task_manager.info.instance, report=report)
            reply = await service.serve(held)
            assert [key.job_id for key in reply.acknowledged] == [graph(2).job_id]  # type: ignore[attr-defined]

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-10")
@pytest.mark.anyio
async def test_an_embedded_store_confirms_only_what_it_can_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.confirm()
        with file_size_limit(0), pytest.raises(Fatal):
            await store.confirm()
        await store.confirm()


@pytest.mark.req("SAFE-10")
@pytest.mark.parametrize("in_doubt", [True, False])
def test_a_driver_in_doubt_registers_only_with_a_leader_that_its_store_confirms(in_doubt: bool) -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            request = RegisterJobMaster(
                job_id=master.job_id,
                attempt=1,
                address="jm:2",
                task_manager=master.task_manager,
                pid=100,
                status=status(2),
                in_doubt=in_doubt,
            )
            before = store.calls["confirm"]
            await service.serve(request)
            assert store.calls["confirm"] == before + in_doubt
            store.before["confirm"] = [Conflict("epoch 1 is over")]
            if in_doubt:
                with pytest.raises(RetryLater, match="no longer the leader: epoch 1 is over"):
                    await service.serve(request)

    in_virtual_time(scenario)


@pytest.mark.req("HA-7", "SAFE-10")
def test_a_heartbeat_is_confirmed_only_by_a_leader_that_its_store_confirms() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()

            async def is_confirmed(asks_confirmation: bool) -> bool:
                request = JobMasterHeartbeat(
                    job_id=JOB, attempt=1, status=status(2), asks_confirmation=asks_confirmation
                )
                reply = await service.serve(request)
                assert isinstance(reply, JobMasterReply)
                assert reply.known
                return reply.confirmed

            assert not await is_confirmed(False)
            assert await is_confirmed(True)
            service.pause()
            assert not await is_confirmed(True), "its session with the store is interrupted"
            service.resume()
            await asyncio.sleep(2 * FRESH)
            before = store.calls["confirm"]
            assert [await is_confirmed(True), await is_confirmed(True)] == [True, True]
            assert store.calls["confirm"] == before + 1, "a confirmation is shared by those who ask soon after"
            await asyncio.sleep(2 * FRESH)
            store.before["confirm"] = [Conflict("epoch 1 is over")]
            # Conflict would tell the driver that its attempt is over.
            with pytest.raises(RetryLater, match="no longer the leader: epoch 1 is over"):
                await is_confirmed(True)
            assert (await master.beat()).known

    in_virtual_time(scenario)

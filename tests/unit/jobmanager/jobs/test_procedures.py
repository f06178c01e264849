"""Savepoint, suspend, drain and move, as the JobManager's neighbours see them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages.job_masters import JobMasterReply, ReportNow
from emberkeep.protocol.messages.root import Ack
from tests.support.scripted_service import ScriptedService
from tests.support.simulator.virtual_loop import EPOCH_MS, VirtualClock
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

SUCCESS = AttemptOutcome(exit_code=0)
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
JOB = graph(1).job_id
LATE = 10**15  # Unix milliseconds; no test lasts so long


def request(number: int = 1, procedure: Procedure = Procedure.SUSPEND, target: str = "/savepoints") -> ProcedureRequest:
    return ProcedureRequest(
        trigger_id=f"{number:032x}",
        procedure=procedure,
        target_directory=target,
        requested_ms=1_000 + number,
        deadline_ms=LATE,
    )


def progress(of: ProcedureRequest, phase: ProcedurePhase, **more: Any) -> ProcedureProgress:
    if phase is ProcedurePhase.COMPLETED and of.procedure.makes_savepoint:
        more = {
            "savepoint": f"/savepoints/{of.trigger_id[-4:]}",
            "manifest_sha256": "ab" * 32,
            "ended_ms": 2_000,
            **more,
        }
    return ProcedureProgress(trigger_id=of.trigger_id, phase=phase, **more)


async def told(master: FakeJobMaster, end: ProcedureProgress) -> JobMasterReply:
    """The first answer that wants nothing any more."""
    async with asyncio.timeout(600):
        while (reply := await master.beat(procedure=end)).procedure is not None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
    return reply


def until(seconds: float, number: int = 1) -> ProcedureRequest:
    """A request of now that is to have an answer after so many seconds."""
    changed = {"requested_ms": now_ms(), "deadline_ms": now_ms() + int(seconds * 1000)}
    return msgspec.structs.replace(request(number), **changed)


COPYING, COMPLETED, FAILED = ProcedurePhase.COPYING, ProcedurePhase.COMPLETED, ProcedurePhase.FAILED


class TestAsking:
    def test_the_driver_is_asked_to_report_at_once(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                driver = ScriptedService({ReportNow: Ack()})
                cluster.network.attach(f"jm-{JOB[-4:]}-1:1", driver)
                await service.gateway.request_procedure(JOB, request())
                async with asyncio.timeout(1):
                    while not driver.requests:  # noqa: ASYNC110 - virtual time
                        await asyncio.sleep(0.01)
                assert driver.requests == [ReportNow(job_id=JOB, attempt=1)]

        in_virtual_time(scenario)

    def test_it_is_durable_when_it_is_acknowledged_and_told_with_the_next_answer(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                assert (await master.beat()).procedure is None
                await service.gateway.request_procedure(JOB, request())
                assert store.disk.jobs[JOB].procedure == request()
                reply = await master.beat()
                assert (reply.procedure, reply.procedure_recorded) == (request(), "")
                view = await service.gateway.procedure(JOB, request().trigger_id)
                assert (view.phase, view.is_over) == (None, False)
                await master.beat(procedure=progress(request(), COPYING, detail="copying", files_done=2, files_total=3))
                view = await service.gateway.procedure(JOB, request().trigger_id)
                assert view.phase is COPYING
                assert view.progress is not None
                assert view.progress.files_done == 2
                assert (await cluster.view(JOB)).procedure == view

        in_virtual_time(scenario)

    def test_one_at_a_time_but_the_same_again_is_the_same(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                for _ in range(2):
                    await service.gateway.request_procedure(JOB, request(1, Procedure.DRAIN))
                with pytest.raises(Conflict, match=f"being drained .*{request(1).trigger_id}"):
                    await service.gateway.request_procedure(JOB, request(2, Procedure.SAVEPOINT))
                with pytest.raises(Conflict, match="used for another request: DRAIN into /savepoints"):
                    await service.gateway.request_procedure(JOB, request(1, Procedure.SAVEPOINT))
                with pytest.raises(Absent):
                    await service.gateway.request_procedure(graph(2).job_id, request(3))
                with pytest.raises(Absent):
                    await service.gateway.procedure(JOB, request(2).trigger_id)

        in_virtual_time(scenario)

    def test_refused_requests_leave_nothing_behind(self) -> None:
        def waiting() -> int:
            return sum(isinstance(each, asyncio.Future) and not each.done() for each in gc.get_objects())

        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                await service.gateway.request_procedure(JOB, request(1, Procedure.DRAIN))
                before = waiting()
                for number in range(2, 102):
                    with pytest.raises(Conflict, match="being drained"):
                        await service.gateway.request_procedure(JOB, request(number, Procedure.SAVEPOINT))
                assert waiting() < before + 50

        in_virtual_time(scenario)

    def test_what_was_not_stored_is_refused_and_what_may_be_stored_becomes_known(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                store.before["record_procedure"] = [Fatal("no space left")]
                with pytest.raises(Fatal):
                    await service.gateway.request_procedure(JOB, request(1))
                with pytest.raises(Absent):
                    await service.gateway.procedure(JOB, request(1).trigger_id)
                store.before["record_procedure"] = [RetryLater("busy")] * 5
                store.after["record_procedure"] = [UnknownOutcome("no answer")]
                with pytest.raises(RetryLater):
                    await service.gateway.request_procedure(JOB, request(2))
                store.before["record_procedure"] = []
                store.after["record_procedure"] = [UnknownOutcome("no answer")]
                await service.gateway.request_procedure(JOB, request(3))
                assert (await master.beat()).procedure == request(3)

        in_virtual_time(scenario)

    def test_a_job_that_is_ending_or_has_ended_takes_none(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                await service.gateway.cancel(JOB)
                with pytest.raises(Conflict, match="CANCELLING"):
                    await service.gateway.request_procedure(JOB, request())
                await master.ends(SUCCESS)
                cluster.task_managers[0].exits(JOB, 1, SUCCESS)
                await cluster.reaches(JOB, JobStatus.CANCELED)
                with pytest.raises(Conflict, match="has ended: it is CANCELED"):
                    await service.gateway.request_procedure(JOB, request())

        in_virtual_time(scenario)


class TestEnd:
    @pytest.mark.req("HA-8")
    def test_a_savepoint_that_is_being_recorded_is_not_lost_when_the_job_ends(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                wanted = request(1, Procedure.SAVEPOINT)
                await service.gateway.request_procedure(JOB, wanted)
                store.before["record_procedure_end"] = [RetryLater("busy")] * 10
                await master.beat(procedure=progress(wanted, COMPLETED))
                await service.gateway.cancel(JOB)
                cluster.task_managers[0].exits(JOB, 1, KILLED)
                ended = await cluster.reaches(JOB, JobStatus.CANCELED)
                assert [each.trigger_id for each in ended.pointers.savepoints] == [wanted.trigger_id]
                assert [each.trigger_id for each in store.recorded[JOB].savepoints] == [wanted.trigger_id]
                view = await service.gateway.procedure(JOB, wanted.trigger_id)
                assert (view.phase, view.savepoint) == (COMPLETED, "/savepoints/0001")

        in_virtual_time(scenario)

    @pytest.mark.req("HA-8")
    def test_a_savepoint_is_recorded_before_that_is_told_and_the_job_runs_on(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                wanted = request(1, Procedure.SAVEPOINT)
                await service.gateway.request_procedure(JOB, wanted)
                done = progress(wanted, COMPLETED, started_ms=500, bytes_total=4096)
                store.before["record_procedure_end"] = [RetryLater("busy")] * 5
                store.after["record_procedure_end"] = [UnknownOutcome("no answer")]
                reply = await master.beat(procedure=done)
                assert (reply.procedure, reply.procedure_recorded) == (wanted, "")
                await cluster.holds(lambda: store.calls["record_procedure_end"] == 7)
                await cluster.holds(lambda: store.disk.jobs[JOB].procedure is None)
                reply = await told(master, done)
                assert reply.procedure_recorded == wanted.trigger_id
                view = await service.gateway.procedure(JOB, wanted.trigger_id)
                assert (view.is_over, view.savepoint, view.phase) == (True, "/savepoints/0001", COMPLETED)
                job = await cluster.view(JOB)
                assert (job.status, job.procedure) == (JobStatus.RUNNING, None)
                (pointer,) = job.pointers.savepoints
                assert (pointer.trigger_id, pointer.size, pointer.duration_ms) == (wanted.trigger_id, 4096, 1500)
                assert pointer.procedure is Procedure.SAVEPOINT
                await service.gateway.request_procedure(JOB, wanted)  # a client's repeat: it is done
                await service.gateway.request_procedure(JOB, request(2, Procedure.SAVEPOINT))

        in_virtual_time(scenario)

    def test_who_tells_an_end_hears_with_the_answer_that_it_is_recorded(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                began = cluster.loop.time()
                reply = await master.beat(procedure=progress(request(), COMPLETED))
                assert (reply.procedure, reply.procedure_recorded) == (None, request().trigger_id)
                assert cluster.loop.time() - began < 0.5

        in_virtual_time(scenario)

    @pytest.mark.req("END-6")
    def test_a_failure_lets_the_job_run_on_and_is_told(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                failed = progress(request(), FAILED, failure="/savepoints: no space left")
                store.after["record_procedure"] = [UnknownOutcome("no answer")]
                await master.beat(procedure=failed)
                await cluster.holds(lambda: store.disk.jobs[JOB].procedure is None)
                reply = await told(master, failed)
                assert reply.procedure_recorded == request().trigger_id
                view = await service.gateway.procedure(JOB, request().trigger_id)
                assert (view.is_over, view.failure, view.phase) == (True, "/savepoints: no space left", FAILED)
                assert (await cluster.view(JOB)).status is JobStatus.RUNNING
            async with cluster.leading() as service:  # what failed is forgotten with its leader
                with pytest.raises(Absent, match="under an earlier leader"):
                    await service.gateway.procedure(JOB, request().trigger_id)
                reply = await (await cluster.next_jobmaster(JOB, 1)).register(procedure=failed)
                assert (reply.procedure, reply.procedure_recorded) == (None, request().trigger_id)

        in_virtual_time(scenario)

    @pytest.mark.parametrize("procedure", [Procedure.SUSPEND, Procedure.DRAIN])
    def test_a_stop_is_over_when_the_script_has_ended(self, procedure: Procedure) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                wanted = request(1, procedure)
                await service.gateway.request_procedure(JOB, wanted)
                await master.beat(procedure=progress(wanted, COMPLETED))
                await cluster.holds(lambda: store.disk.jobs[JOB].stopped == wanted.trigger_id)
                reply = await told(master, progress(wanted, COMPLETED))
                assert reply.procedure_recorded == wanted.trigger_id
                view = await service.gateway.procedure(JOB, wanted.trigger_id)
                assert (view.is_over, view.phase, view.savepoint) == (False, COMPLETED, "/savepoints/0001")
                with pytest.raises(Conflict, match="was stopped by request"):
                    await service.gateway.request_procedure(JOB, request(2))
                await master.ends(SUCCESS)
                await cluster.reaches(JOB, JobStatus.FINISHED)
                view = await service.gateway.procedure(JOB, wanted.trigger_id)
                assert (view.is_over, view.savepoint) == (True, "/savepoints/0001")
            async with cluster.leading() as service:
                view = await service.gateway.procedure(JOB, wanted.trigger_id)
                assert view.request is not None  # the command tells by it whether the job was stopped
                assert (view.request.procedure, view.request.target_directory) == (procedure, "/savepoints")
                assert (view.is_over, view.savepoint) == (True, "/savepoints/0001")
                await service.gateway.request_procedure(JOB, wanted)

        in_virtual_time(scenario)

    def test_a_savepoint_that_was_written_before_the_jobs_end_is_told_although_the_end_is_known_first(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                store.after["record_procedure_end"] = [UnknownOutcome("no answer")]
                await master.beat(procedure=progress(request(), COMPLETED))
                await cluster.holds(lambda: store.disk.jobs[JOB].stopped)
                await master.ends(SUCCESS)  # by itself
                await cluster.reaches(JOB, JobStatus.FINISHED)
                assert [each.trigger_id for each in store.recorded[JOB].savepoints] == [request().trigger_id]
            async with cluster.leading() as service:
                assert (await service.gateway.procedure(JOB, request().trigger_id)).savepoint == "/savepoints/0001"

        in_virtual_time(scenario)

    def test_an_end_that_the_store_cannot_keep_holds_no_restart_up_and_is_told_again(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                task_manager = await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                store.before["record_procedure_end"] = [Fatal("the pointers cannot be read")] * 1000
                await master.beat(procedure=progress(request(), COMPLETED))
                task_manager.exits(JOB, 1, KILLED)
                master = await cluster.next_jobmaster(JOB, 2)
                assert task_manager.started[-1].procedure == request()
                store.before["record_procedure_end"] = []
                await told(master, progress(request(), COMPLETED))
                await master.ends(SUCCESS)
                await cluster.reaches(JOB, JobStatus.FINISHED)

        in_virtual_time(scenario)

    def test_a_cancellation_wins_and_the_request_has_failed(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                await master.beat(procedure=progress(request(), COPYING))
                await service.gateway.cancel(JOB)
                cluster.task_managers[0].exits(JOB, 1, KILLED)
                await cluster.reaches(JOB, JobStatus.CANCELED)
                view = await service.gateway.procedure(JOB, request().trigger_id)
                assert (view.is_over, view.phase) == (True, FAILED)
                assert "it is CANCELED" in view.failure

        in_virtual_time(scenario)

    def test_a_script_that_ends_by_itself_before_is_told_truly(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                await master.ends(SUCCESS)
                await cluster.reaches(JOB, JobStatus.FINISHED)
                assert "it is FINISHED" in (await service.gateway.procedure(JOB, request().trigger_id)).failure

        in_virtual_time(scenario)


class TestDeadline:
    @pytest.mark.parametrize(
        ("settings", "options", "seconds"),
        [
            ({}, {}, 600),
            ({"execution.stop.batch-timeout": "2min"}, {}, 120),
            ({"execution.stop.batch-timeout": "2min"}, {"execution.stop.batch-timeout": "30s"}, 30),
        ],
    )
    def test_what_leaves_it_open_gets_the_jobs_or_the_clusters(
        self, settings: dict[str, str], options: dict[str, str], seconds: int
    ) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), settings)
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job(options=options)
                open_ended = msgspec.structs.replace(request(), deadline_ms=0)
                asked = await service.gateway.request_procedure(JOB, open_ended)
                assert asked.deadline_ms == open_ended.requested_ms + seconds * 1000
                given = request(2)
                with pytest.raises(Conflict):
                    await service.gateway.request_procedure(JOB, given)
                assert (await service.gateway.procedure(JOB, asked.trigger_id)).request == asked

        in_virtual_time(scenario)

    def test_a_driver_is_told_of_it_by_every_leader_and_is_the_one_to_give_up(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                wanted = until(30)
                await service.gateway.request_procedure(JOB, wanted)
            async with cluster.leading() as service:
                master = await cluster.next_jobmaster(JOB, 1)
                while now_ms() < wanted.deadline_ms + 20_000:
                    assert (await master.beat()).procedure == wanted, "the job has a driver: it decides"
                    await asyncio.sleep(1.0)
                late = progress(wanted, FAILED, failure="batch 41 did not end in time")
                await told(master, late)
                view = await service.gateway.procedure(JOB, wanted.trigger_id)
                assert (view.is_over, view.failure) == (True, "batch 41 did not end in time")
                assert (await cluster.view(JOB)).status is JobStatus.RUNNING
                assert store.disk.jobs[JOB].procedure is None

        in_virtual_time(scenario)

    @pytest.mark.req("END-6")
    @pytest.mark.parametrize("leaders", [1, 2])
    def test_without_a_driver_it_fails_when_its_time_is_over_and_the_next_driver_is_not_told(
        self, leaders: int
    ) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await service.gateway.submit(graph())  # and there is no task manager
                wanted = until(60)
                await service.gateway.request_procedure(JOB, wanted)
                if leaders == 1:
                    await over(cluster, wanted)
            if leaders == 2:
                async with cluster.leading() as service:
                    await over(cluster, wanted)
            async with cluster.leading():
                assert store.disk.jobs[JOB].procedure is None
                task_manager = await cluster.add()
                await cluster.next_jobmaster(JOB, 1)
                assert task_manager.started[-1].procedure is None
                await cluster.reaches(JOB, JobStatus.RUNNING)

        in_virtual_time(scenario)

    @pytest.mark.parametrize("jump_ms", [10**12, -(10**12)])
    def test_a_clock_that_jumps_changes_nothing_of_its_time(
        self, jump_ms: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await service.gateway.submit(graph())  # and there is no task manager
                wanted = until(60)
                await service.gateway.request_procedure(JOB, wanted)
                read = VirtualClock.now_ms
                monkeypatch.setattr(VirtualClock, "now_ms", lambda clock: read(clock) + jump_ms)
                await over(cluster, wanted)

        in_virtual_time(scenario)

    def test_without_a_driver_it_has_longer_by_the_time_in_which_the_leader_decides_nothing(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await service.gateway.submit(graph())  # and there is no task manager
                wanted, doubt_ms = until(60), 300_000
                await service.gateway.request_procedure(JOB, wanted)
                service.pause()
                await asyncio.sleep(doubt_ms / 1000)
                service.resume()
                await over(cluster, msgspec.structs.replace(wanted, deadline_ms=wanted.deadline_ms + doubt_ms))

        in_virtual_time(scenario)

    def test_an_attempt_that_is_being_recorded_when_its_time_is_over_is_told_of_it(self) -> None:
        """Or a driver would be told that its job is to end, and nobody would want that any more."""

        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                task_manager = await cluster.add()
                await cluster.run_job()
                wanted = until(5)
                await service.gateway.request_procedure(JOB, wanted)
                store.before["record_attempt"] = [RetryLater("busy")] * 1000
                task_manager.exits(JOB, 1, KILLED)
                await cluster.holds(lambda: now_ms() > wanted.deadline_ms + 5_000)
                store.before["record_attempt"] = []
                master = await cluster.next_jobmaster(JOB, 2)
                assert task_manager.started[-1].procedure == wanted
                assert (await master.beat()).procedure == wanted

        in_virtual_time(scenario)


def now_ms() -> int:
    return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)


async def over(cluster: SmallCluster, wanted: ProcedureRequest) -> None:
    """Not before its time it has failed, for want of a driver."""
    async with asyncio.timeout(600):
        while not (view := await cluster.service.gateway.procedure(JOB, wanted.trigger_id)).is_over:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert wanted.deadline_ms <= now_ms() < wanted.deadline_ms + 10_000
    assert "had no driver when the request's time was over" in view.failure


class TestFailover:
    def test_the_next_leader_and_the_next_attempt_carry_it_on(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
            async with cluster.leading() as service:
                assert (await service.gateway.procedure(JOB, request().trigger_id)).phase is None
                await service.gateway.request_procedure(JOB, request())
                master = await cluster.next_jobmaster(JOB, 1)
                assert (await master.beat()).procedure == request()
                cluster.task_managers[0].exits(JOB, 1, KILLED)
                await cluster.next_jobmaster(JOB, 2)
                assert cluster.task_managers[0].started[-1].procedure == request()
                with pytest.raises(Conflict):
                    await master.beat(procedure=progress(request(), COMPLETED))
                assert store.disk.jobs[JOB].procedure == request()

        in_virtual_time(scenario)

    @pytest.mark.req("END-5")
    def test_a_stop_whose_attempt_is_lost_while_it_is_recorded_is_the_end(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                task_manager = await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request())
                # Written, but for long the JobManager does not know.
                store.after["record_procedure_end"] = [UnknownOutcome("no answer")] * 8
                await master.beat(procedure=progress(request(), COMPLETED))
                task_manager.exits(JOB, 1, KILLED)
                await cluster.reaches(JOB, JobStatus.FINISHED)
                assert [start.attempt for start in task_manager.started] == [1]
                assert (await service.gateway.procedure(JOB, request().trigger_id)).savepoint == "/savepoints/0001"

        in_virtual_time(scenario)

    @pytest.mark.req("END-5")
    def test_the_next_leader_starts_no_attempt_after_a_stop(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                task_manager = await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, request(1, Procedure.DRAIN))
                await master.beat(procedure=progress(request(), COMPLETED))
                await cluster.holds(lambda: store.disk.jobs[JOB].stopped)
            task_manager.exits(JOB, 1, KILLED)
            async with cluster.leading() as service:
                view = await cluster.reaches(JOB, JobStatus.FINISHED)
                assert (view.exit_code, len(task_manager.started)) == (0, 1)
                assert (await service.gateway.procedure(JOB, request().trigger_id)).is_over

        in_virtual_time(scenario)

    def test_a_move_has_ended_with_the_next_attempt(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                task_manager = await cluster.add()
                master = await cluster.run_job()
                move = request(1, Procedure.MOVE, "")
                await service.gateway.request_procedure(JOB, move)
                assert (await master.beat()).procedure == move
                task_manager.exits(JOB, 1, KILLED)
                master = await cluster.next_jobmaster(JOB, 2)
                assert (await master.beat()).procedure is None
                assert task_manager.started[-1].procedure is None
                assert (await service.gateway.procedure(JOB, move.trigger_id)).phase is COMPLETED
                await service.gateway.request_procedure(JOB, request(2))

        in_virtual_time(scenario)

    @pytest.mark.parametrize("procedure", [each for each in Procedure if each.makes_savepoint])
    @pytest.mark.parametrize("leaders", [1, 2])
    def test_a_move_that_waits_for_a_place_gives_way_to_what_a_user_asks_for(
        self, procedure: Procedure, leaders: int
    ) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            move, wanted = request(1, Procedure.MOVE, ""), request(2, procedure)
            async with cluster.leading() as service:
                home = await cluster.add()
                await cluster.run_job()
                await service.gateway.request_procedure(JOB, move)
                with pytest.raises(Conflict, match="it is being moved"):
                    await service.gateway.request_procedure(JOB, wanted)
                await service.gateway.block(blocked(home), merge=False)
                home.exits(JOB, 1, KILLED)  # before it has told that it may leave
                await waits_for_a_place(cluster)
                store.before["record_procedure"] = [Fatal("no space left")]
                with pytest.raises(Fatal):
                    await service.gateway.request_procedure(JOB, wanted)
                assert store.disk.jobs[JOB].procedure == move
                store.after["record_procedure"] = [UnknownOutcome("no answer")]
                asking = [asyncio.ensure_future(service.gateway.request_procedure(JOB, wanted)) for _ in range(2)]
                await asyncio.sleep(0.01)  # it is being written
                with pytest.raises(Conflict, match=f"is busy.*{wanted.trigger_id}"):
                    await service.gateway.request_procedure(JOB, request(3))
                await asyncio.gather(*asking)
                assert store.disk.jobs[JOB].procedure == wanted
                assert (await service.gateway.procedure(JOB, move.trigger_id)).is_over
                assert (await service.gateway.procedure(JOB, wanted.trigger_id)).phase is None
                if leaders == 1:
                    await carried_out(cluster, wanted)
            if leaders == 2:
                async with cluster.leading() as service:
                    await carried_out(cluster, wanted)

        in_virtual_time(scenario)

    def test_an_attempt_that_is_recorded_while_a_move_gives_way_leaves_what_is_asked_for(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                home = await cluster.add()
                await cluster.run_job()
                await service.gateway.request_procedure(JOB, request(1, Procedure.MOVE, ""))
                await service.gateway.block(blocked(home), merge=False)
                home.exits(JOB, 1, KILLED)
                await waits_for_a_place(cluster)
                store.before["record_procedure"] = [RetryLater("busy")] * 4
                asking = asyncio.ensure_future(service.gateway.request_procedure(JOB, request(2)))
                await asyncio.sleep(0.01)  # it is being written
                await cluster.add("tm-2")
                master = await cluster.next_jobmaster(JOB, 2)
                await asking
                assert store.disk.jobs[JOB].procedure == request(2)
                assert (await master.beat()).procedure == request(2)

        in_virtual_time(scenario)


class TestOneRecordAtATime:
    """Two requests about one job never write at the same time: the later write would undo the earlier."""

    @pytest.mark.req("END-5")
    def test_the_end_of_a_failed_move_does_not_delete_the_request_that_follows_it(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            move, wanted = request(1, Procedure.MOVE, ""), request(2, Procedure.SAVEPOINT)
            async with cluster.leading() as service:
                home = await cluster.add()
                master = await cluster.run_job()
                await service.gateway.request_procedure(JOB, move)
                store.before["record_procedure"] = [RetryLater("busy")] * 1000
                await master.beat(procedure=progress(move, FAILED, failure="a function did not keep its state"))
                await service.gateway.block(blocked(home), merge=False)
                home.exits(JOB, 1, KILLED)
                await waits_for_a_place(cluster)
                store.before["record_procedure"] = []
                await accepted(service, wanted)
                await asyncio.sleep(10.0)  # longer than the longest pause between two tries of a write
                assert store.disk.jobs[JOB].procedure == wanted

        in_virtual_time(scenario)

    @pytest.mark.req("END-5")
    @pytest.mark.parametrize("rounds", range(12))
    def test_a_repeat_that_arrives_as_the_store_refuses_is_refused_too(self, rounds: int) -> None:
        async def scenario() -> None:
            store = Overtaken(rounds)
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                store.repeat = lambda: service.gateway.request_procedure(JOB, request())
                with pytest.raises(Fatal):
                    await service.gateway.request_procedure(JOB, request())
                assert store.repeated is not None
                await asyncio.wait([store.repeated])
                if store.repeated.exception() is None:
                    assert store.disk.jobs[JOB].procedure == request(), "it was acknowledged"

        in_virtual_time(scenario)


async def accepted(service: JobManagerService, wanted: ProcedureRequest) -> None:
    """Ask until the job is no longer busy."""
    async with asyncio.timeout(600):
        while True:
            try:
                await service.gateway.request_procedure(JOB, wanted)
            except Conflict:
                await asyncio.sleep(0.5)
            else:
                return


class Overtaken(FailingStore):
    """Refuses the first request. Some ``rounds`` of the event loop earlier, the same request is made again."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.repeat: Callable[[], Coroutine[Any, Any, ProcedureRequest]] | None = None
        self.repeated: asyncio.Task[ProcedureRequest] | None = None

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        if self.repeat is not None and self.repeated is None:
            self.repeated = asyncio.create_task(self.repeat())
            for _ in range(self.rounds):
                await asyncio.sleep(0)
            raise Fatal("no space left")
        await super().record_procedure(job_id, request)


def blocked(home: FakeTaskManager) -> BlockedNode:
    return BlockedNode(id=home.info.id, action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("power",))


async def waits_for_a_place(cluster: SmallCluster) -> None:
    async with asyncio.timeout(600):
        while "on blocked nodes" not in (await cluster.view(JOB)).waiting:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)


async def carried_out(cluster: SmallCluster, wanted: ProcedureRequest) -> None:
    """By the next attempt, once there is a place."""
    elsewhere = await cluster.add("tm-2")
    master = await cluster.next_jobmaster(JOB, 2)
    assert elsewhere.started[-1].procedure == wanted
    reply = await told(master, progress(wanted, COMPLETED))
    assert reply.procedure_recorded == wanted.trigger_id
    if wanted.procedure.ends_attempt:
        await master.ends(SUCCESS)
        await cluster.reaches(JOB, JobStatus.FINISHED)

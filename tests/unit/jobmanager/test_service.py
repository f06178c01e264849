"""The JobManager as its neighbours see it: task managers, JobMasters, store and edges."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.base.errors import Absent, Conflict, Fatal, InvalidInput, OverQuota, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, ExceptionEntry, FailureKind, JobGraph, JobStatus
from emberkeep.protocol.messages.task_managers import AllocateSlot, AttemptKey, RegisterTaskManager
from emberkeep.slots.model import ResourceProfile
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, executor_in, graph
from tests.unit.jobmanager.memory_store import FailingStore

SUCCESS = AttemptOutcome(exit_code=0)
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
JOB = graph(1).job_id


def test_a_job_goes_its_way_from_submission_to_finished() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            submission = await service.gateway.submit(graph(1))
            assert submission.created
            master = await cluster.next_jobmaster(JOB, 1, 2)
            view = await cluster.view(JOB)
            assert (view.status, view.attempt, view.driver_task_manager) == (JobStatus.RUNNING, 1, "tm-1")
            started = task_manager.started[0]
            assert (started.attempt, started.epoch, started.memory_mb) == (1, 1, 640)
            assert (started.job_manager, started.checkpoint_root) == ("jm:1", "/checkpoints")
            await cluster.holds(lambda: len(task_manager.allocations) == 2)
            assert {slot.job_master for slot in task_manager.allocations.values()} == {"jm-0001-1:1"}
            await master.ends(SUCCESS)
            view = await cluster.reaches(JOB, JobStatus.FINISHED)
            assert (view.exit_code, view.root_cause) == (0, "")
            assert store.recorded[JOB].status is JobStatus.FINISHED
            assert JOB not in store.handles

    in_virtual_time(scenario)


@pytest.mark.req("HA-4")
def test_a_final_status_is_shown_only_when_it_is_durable() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            errors = [RetryLater("busy"), UnknownOutcome("no answer"), Fatal("no space left"), RetryLater("busy")]
            store.before["record_result"] = list(errors)
            store.after["record_result"] = [UnknownOutcome("no answer")]
            with pytest.raises(RetryLater, match="not stored yet"):  # whoever has told it keeps it
                await master.ends(SUCCESS)
            await cluster.holds(lambda: not store.before["record_result"])
            view = await cluster.view(JOB)
            assert (view.status, view.last_attempt_over, view.executors_wanted) == (JobStatus.RUNNING, True, 0)
            await cluster.reaches(JOB, JobStatus.FINISHED)
            await master.ends(SUCCESS)  # told again

    in_virtual_time(scenario)


@pytest.mark.req("HA-7")
def test_an_attempt_that_may_be_recorded_is_burnt() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            task_manager = await cluster.add()
            store.before["record_attempt"] = [RetryLater("busy"), Fatal("disk full")]
            store.after["record_attempt"] = [UnknownOutcome("no answer")]
            await cluster.service.gateway.submit(graph(1))
            await cluster.next_jobmaster(JOB, 2)
            assert store.attempts == [(JOB, 1), (JOB, 2)]
            assert [start.attempt for start in task_manager.started] == [2]

    in_virtual_time(scenario)


def test_an_attempt_is_shown_once_it_is_stored() -> None:
    """Found by a campaign: clients saw attempt 2, and attempt 0 under the next leader."""

    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            await cluster.add()
            store.before["record_attempt"] = [UnknownOutcome("no answer"), *[RetryLater("ZooKeeper is away")] * 9]
            await cluster.service.gateway.submit(graph(1))
            await cluster.holds(lambda: len(store.before["record_attempt"]) < 5)
            assert (await cluster.view(JOB)).attempt == 0
        async with cluster.leading():
            assert (await cluster.view(JOB)).attempt == 0

    in_virtual_time(scenario)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_canceled_job_keeps_the_number_of_its_newest_attempt(is_written: bool) -> None:
    """Found by a campaign: clients saw attempt 2, which was being recorded, and attempt 1 under the next leader."""

    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading():
            task_manager = await cluster.add()
            await cluster.run_job()
            answers = store.after if is_written else store.before
            answers["record_attempt"] = [UnknownOutcome("no answer")]
            task_manager.exits(JOB, 1, KILLED)
            await cluster.holds(lambda: not answers["record_attempt"])
            await cluster.service.gateway.cancel(JOB)
            view = await cluster.reaches(JOB, JobStatus.CANCELED)
        async with cluster.leading():
            assert (await cluster.view(JOB)).attempt == view.attempt

    in_virtual_time(scenario)


def test_a_cancellation_is_answered_when_it_is_durable_and_not_before() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add()
            await cluster.run_job()
            store.before["record_cancel"] = [Fatal("no space left")]
            with pytest.raises(Fatal):
                await service.gateway.cancel(JOB)
            assert (await cluster.view(JOB)).status is JobStatus.RUNNING
            store.before["record_cancel"] = [RetryLater("busy")]
            store.after["record_cancel"] = [UnknownOutcome("no answer")]
            await service.gateway.cancel(JOB)
            assert store.disk.jobs[JOB].canceled
        async with cluster.leading():
            cluster.task_managers[0].exits(JOB, 1, KILLED)
            await cluster.reaches(JOB, JobStatus.CANCELED)

    in_virtual_time(scenario)


def test_a_cancellation_that_may_be_stored_is_not_called_refused_and_takes_effect() -> None:
    """Found by a campaign: the caller got 503, the job continued, and the next leader cancelled it."""

    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add()
            await cluster.run_job()
            store.before["record_cancel"] = [UnknownOutcome("no answer"), *[RetryLater("ZooKeeper is away")] * 9]
            with pytest.raises(UnknownOutcome, match="ZooKeeper is away"):
                await service.gateway.cancel(JOB)
            await cluster.reaches(JOB, JobStatus.CANCELLING)
            cluster.task_managers[0].exits(JOB, 1, KILLED)
            await cluster.reaches(JOB, JobStatus.CANCELED)

    in_virtual_time(scenario)


def test_a_hundred_submissions_at_once() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            for number in range(10):
                await cluster.add(f"tm-{number}", driver_places=10)
            submissions = await asyncio.gather(*(service.gateway.submit(graph(number)) for number in range(1, 101)))
            assert all(submission.created for submission in submissions)
            started = [start for task_manager in cluster.task_managers for start in task_manager.started]
            await cluster.holds(lambda: sum(len(t.drivers) for t in cluster.task_managers) == 100)
            assert all(len(task_manager.drivers) == 10 for task_manager in cluster.task_managers), "spread evenly"
            assert len({start.graph.job_id for start in started}) == len(started)
            assert len(await service.gateway.jobs()) == 100

    in_virtual_time(scenario)


class TestSubmission:
    def test_the_same_key_starts_one_job(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await service.gateway.submit(graph(1, key="same"))
                again = await service.gateway.submit(graph(2, key="same"))
                assert (again.job_id, again.created) == (JOB, False)
                assert [view.job_id for view in await service.gateway.jobs()] == [JOB]

        in_virtual_time(scenario)

    def test_a_key_of_another_namespace_does_not_give_its_job(self) -> None:
        """It would be taken for the caller's own, which would never run."""

        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                ours = msgspec.structs.replace(graph(1, key="nightly"), namespace="flights")
                assert (await service.gateway.submit(ours)).created
                for number in (1, 2):
                    theirs = msgspec.structs.replace(graph(number, key="nightly"), namespace="trains")
                    with pytest.raises(Conflict, match="a job of another namespace was submitted with this") as refused:
                        await service.gateway.submit(theirs)
                    assert ours.job_id not in str(refused.value)
                assert not (await service.gateway.submit(ours)).created
                assert [view.job_id for view in await service.gateway.jobs()] == [JOB]

        in_virtual_time(scenario)

    def test_a_job_id_is_not_given_twice(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await service.gateway.submit(graph(1, key="one"))
                with pytest.raises(Conflict, match="taken by another submission"):
                    await service.gateway.submit(graph(1, key="two"))

        in_virtual_time(scenario)

    @pytest.mark.parametrize("error", [RetryLater("busy"), Fatal("no space left"), Conflict("that id has ended")])
    def test_what_was_not_stored_is_not_accepted(self, error: RetryLater | Fatal | Conflict) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                store.before["create"] = [type(error)(error.message) for _ in range(10)]
                with pytest.raises(type(error)):
                    await service.gateway.submit(graph(1))
                assert await service.gateway.jobs() == []
                assert not store.handles
                store.before.clear()
                assert (await service.gateway.submit(graph(1))).created

        in_virtual_time(scenario)

    def test_a_job_that_may_be_stored_becomes_known(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                store.after["create"] = [UnknownOutcome("no answer") for _ in range(20)]
                with pytest.raises(UnknownOutcome, match="same idempotency key"):
                    await service.gateway.submit(graph(1))
                await cluster.holds(lambda: not store.after["create"])
                async with asyncio.timeout(60):
                    while not await service.gateway.jobs():  # noqa: ASYNC110 - virtual time
                        await asyncio.sleep(0.1)

        in_virtual_time(scenario)

    def test_unknown_options_name_the_key(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                with pytest.raises(InvalidInput, match=r"restart-strategy\.type"):
                    await service.gateway.submit(graph(1, options={"restart-strategy.typ": "none"}))

        in_virtual_time(scenario)

    def test_what_no_task_manager_could_ever_run_is_refused(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                assert (await service.gateway.submit(graph(1))).created, "with no task manager at all it waits for one"
                await cluster.add(total=ResourceProfile(cores=4, memory_mb=1024))
                with pytest.raises(InvalidInput, match="can never run here"):
                    await service.gateway.submit(graph(2))

        in_virtual_time(scenario)

    def test_a_job_that_begins_without_executors_is_refused_if_none_could_ever_run(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                resources = msgspec.structs.replace(graph(1).resources, executors=0, executor_memory_mb=10**6)
                without = msgspec.structs.replace(graph(1), resources=resources)
                assert (await service.gateway.submit(without)).created, "it never asks for any"
                later = msgspec.structs.replace(
                    graph(2), resources=resources, spark_conf={"spark.dynamicAllocation.enabled": "True "}
                )
                with pytest.raises(InvalidInput, match="can never run here"):
                    await service.gateway.submit(later)

        in_virtual_time(scenario)

    def test_a_repeated_submission_is_known_although_nothing_could_run_it_now(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                assert (await service.gateway.submit(graph(1))).created, "with no task manager at all it waits for one"
                await cluster.add(total=ResourceProfile(cores=4, memory_mb=1024))
                again = await service.gateway.submit(graph(1))
                assert (again.job_id, again.created) == (graph(1).job_id, False)
                other_id = msgspec.structs.replace(graph(2), idempotency_key=graph(1).idempotency_key)
                again = await service.gateway.submit(other_id)
                assert (again.job_id, again.created) == (graph(1).job_id, False)

        in_virtual_time(scenario)

    def test_a_new_leader_waits_for_task_managers_before_it_refuses_what_is_too_large(self) -> None:
        """The large one may register after a small one, and what it can run must not be refused for ever."""

        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), {"heartbeat.timeout": "20s"})
            async with cluster.leading():
                await cluster.add("tm-large")
            async with cluster.leading() as service:
                await cluster.add("tm-small", total=ResourceProfile(cores=4, memory_mb=1024))
                with pytest.raises(RetryLater, match="may not have registered yet"):
                    await service.gateway.submit(graph(1))
                await asyncio.sleep(20.0)
                assert (await service.gateway.submit(graph(1))).created, "the large one has registered"
                huge = msgspec.structs.replace(graph(2).resources, driver_memory_mb=10**6)
                with pytest.raises(InvalidInput, match="can never run here"):
                    await service.gateway.submit(msgspec.structs.replace(graph(2), resources=huge))

        in_virtual_time(scenario)

    def test_a_task_manager_that_keeps_checkpoints_elsewhere_is_refused(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                with pytest.raises(InvalidInput, match=r"in /elsewhere, this JobManager in /checkpoints") as refused:
                    await cluster.add(checkpoints="/elsewhere")
                assert refused.value.field == "high-availability.storageDir"
                assert await service.gateway.task_managers() == []
                await cluster.add("tm-2", checkpoints="/checkpoints")
                await cluster.add("tm-3", checkpoints="")  # local recovery is off there

        in_virtual_time(scenario)

    def test_jobs_beyond_the_limit_are_put_off(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), {"jobmanager.max-jobs": "2"})
            async with cluster.leading() as service:
                await service.gateway.submit(graph(1))
                await service.gateway.submit(graph(2))
                with pytest.raises(RetryLater, match=r"jobmanager\.max-jobs"):
                    await service.gateway.submit(graph(3))

        in_virtual_time(scenario)

    @pytest.mark.req("SEC-16")
    def test_a_namespace_has_no_more_jobs_than_its_quota_and_others_are_accepted(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), {"security.quota.jobs-per-namespace": "2"})
            async with cluster.leading() as service:
                await service.gateway.submit(of_namespace(graph(1), "a"))
                await service.gateway.submit(of_namespace(graph(2), "a"))
                with pytest.raises(OverQuota, match=r"namespace 'a' has 2 jobs .* may have 2") as refused:
                    await service.gateway.submit(of_namespace(graph(3), "a"))
                assert "security.quota.jobs-per-namespace" in (refused.value.hint or "")
                repeated = await service.gateway.submit(of_namespace(graph(2), "a"))
                assert not repeated.created, "a repetition is no further job"
                for number, namespace in ((4, "b"), (5, ""), (6, ""), (7, "")):
                    await service.gateway.submit(of_namespace(graph(number), namespace))
                await service.gateway.cancel(graph(1).job_id)
                await cluster.reaches(graph(1).job_id, JobStatus.CANCELED)
                await service.gateway.submit(of_namespace(graph(3), "a"))
                views = {view.job_id for view in await service.gateway.jobs()}
                assert views == {graph(number).job_id for number in range(1, 8)}, "nothing is left of what was refused"

        in_virtual_time(scenario)

    @pytest.mark.parametrize("limit", ["security.quota.jobs-per-namespace", "jobmanager.max-jobs"])
    def test_a_repetition_under_another_id_gets_its_job_although_there_is_no_room_for_a_further_one(
        self, limit: str
    ) -> None:
        """A client without files leaves the choice of the id to the JobManager, and knows the key alone."""

        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), {limit: "1"})
            async with cluster.leading() as service:
                first = of_namespace(graph(1), "a")
                await service.gateway.submit(first)
                repeated = msgspec.structs.replace(first, job_id=graph(2).job_id)
                answer = await service.gateway.submit(repeated)
                assert (answer.job_id, answer.created) == (first.job_id, False)
                with pytest.raises((OverQuota, RetryLater)):
                    await service.gateway.submit(of_namespace(graph(2), "a"))

        in_virtual_time(scenario)


def of_namespace(graph: JobGraph, namespace: str) -> JobGraph:
    return msgspec.structs.replace(graph, namespace=namespace)


class TestLoss:
    def test_a_driver_killed_is_started_again_and_its_exit_is_acknowledged_then(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading():
                task_manager = await cluster.add()
                await cluster.run_job()
                task_manager.exits(JOB, 1, KILLED)
                reply = await task_manager.beat()
                assert not reply.acknowledged, "nothing durable has followed from it yet"
                await cluster.next_jobmaster(JOB, 2)
                await cluster.holds(lambda: (JOB, 1) not in task_manager.drivers)
                view = await cluster.view(JOB)
                assert [record.attempt for record in view.attempts] == [1, 2]
                assert view.exceptions[-1].message == "killed by SIGKILL"

        in_virtual_time(scenario)

    def test_losing_a_task_manager_does_not_touch_a_driver_that_is_heard_of(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                await cluster.add("tm-1")
                master = await cluster.run_job()
                await cluster.add("tm-2")
                cluster.silent.add(cluster.task_managers[0].info.instance)
                for _ in range(60):
                    await asyncio.sleep(1.0)
                    await master.beat()
                assert (await cluster.view(JOB)).status is JobStatus.RUNNING
                assert [view.info.id for view in await cluster.service.gateway.task_managers()] == ["tm-2"]

        in_virtual_time(scenario)

    def test_a_node_that_dies_gives_its_driver_to_another(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                await cluster.add("tm-1")
                master = await cluster.run_job()
                await cluster.add("tm-2")
                cluster.silent.add(cluster.task_managers[0].info.instance)
                cluster.network.detach("tm-1:1")
                again = await cluster.next_jobmaster(JOB, 2)
                assert again.task_manager == "tm-2"
                with pytest.raises(Conflict, match="not the current attempt"):
                    await master.beat()

        in_virtual_time(scenario)

    def test_jobmasters_hear_of_lost_task_managers_and_of_their_return(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), {"taskmanager.orphan-timeout": "30s"})
            async with cluster.leading():
                await cluster.add("tm-1", slots=0)
                other = await cluster.add("tm-2", driver_places=0)
                master = await cluster.run_job(count=2)
                await cluster.holds(lambda: len(other.allocations) == 2)
                await other.beat()
                held = tuple(executor_in(allocation, other.info) for allocation in other.allocations.values())
                cluster.silent.add(other.info.instance)
                for _ in range(25):
                    await asyncio.sleep(1.0)
                    reply = await master.beat(2, executors=held)
                    assert (reply.lost, reply.missing) == ((), ""), "it is away, and its executors may go on"
                assert (await cluster.service.gateway.task_manager(other.info.id)).away
                for _ in range(9):
                    await asyncio.sleep(1.0)
                    await master.beat(2, executors=held)
                await asyncio.sleep(1.0)
                assert (await master.beat(2, executors=held)).lost == (other.info.instance,)
                await master.beat(2)
                await asyncio.sleep(1.0)
                reply = await master.beat(2)
                assert "2 of 2 slots" in reply.missing
                cluster.silent.clear()
                await asyncio.sleep(3.0)
                reply = await master.beat(2)
                assert (reply.lost, reply.missing) == ((), "")

        in_virtual_time(scenario)

    @pytest.mark.req("LOC-5")
    @pytest.mark.parametrize("seconds", [0.0, 15.0], ids=["at once", "when it was away"])
    def test_a_task_manager_that_takes_over_from_its_former_life_loses_nothing(self, seconds: float) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                old = await cluster.add()
                master = await cluster.run_job(count=2)
                await cluster.holds(lambda: len(old.allocations) == 2)
                await old.beat()
                held = tuple(executor_in(allocation, old.info) for allocation in old.allocations.values())
                cluster.silent.add(old.info.instance)
                for _ in range(int(seconds)):
                    await asyncio.sleep(1.0)
                    await master.beat(2, executors=held)
                assert (await service.gateway.task_manager(old.info.id)).away == (seconds > 0)
                new = FakeTaskManager(service, instance="2", predecessor=old.info.instance, address="tm-1:2")
                new.allocations, new.drivers = dict(old.allocations), dict(old.drivers)
                cluster.network.attach("tm-1:2", new)
                await new.register()
                for _ in range(30):  # longer than a driver's lease
                    await asyncio.sleep(1.0)
                    await new.beat()
                    reply = await master.beat(2, executors=held)
                    assert (reply.lost, reply.missing) == ((), "")
                view = await service.gateway.task_manager(old.info.id)
                assert (view.away, view.info, view.free_slots) == (False, new.info, new.info.slots - 2)
                assert (await cluster.view(JOB)).attempt == 1
                assert new.started == []

        in_virtual_time(scenario)

    @pytest.mark.req("LOC-5")
    def test_what_a_task_manager_does_not_take_over_is_gone_at_once(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                old = await cluster.add()
                master = await cluster.run_job(count=2)
                await cluster.holds(lambda: len(old.allocations) == 2)
                await old.beat()
                held = tuple(executor_in(allocation, old.info) for allocation in old.allocations.values())
                cluster.silent.add(old.info.instance)
                new = FakeTaskManager(service, instance="2", predecessor=old.info.instance, address="tm-1:2")
                new.drivers = dict(old.drivers)
                cluster.network.attach("tm-1:2", new)
                await new.register()
                reply = await master.beat(2, executors=held)
                assert reply.lost == (old.info.instance,), "no slot of the job is left"
                new.drivers.clear()
                await new.beat()
                await cluster.holds(lambda: [order.attempt for order in new.started] == [2], seconds=5.0)

        in_virtual_time(scenario)

    def test_a_driver_that_never_registers_is_stopped(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore(), {"job.driver.start-timeout": "30s"})
            async with cluster.leading():
                task_manager = await cluster.add()
                await cluster.service.gateway.submit(graph(1))
                await cluster.holds(lambda: task_manager.stopped)
                assert (task_manager.stopped[0].attempt, task_manager.stopped[0].grace) == (1, 0.0)
                task_manager.exits(JOB, 1, KILLED)
                await cluster.holds(lambda: (JOB, 2) in task_manager.drivers)

        in_virtual_time(scenario)

    def test_a_start_that_is_refused_is_tried_elsewhere_in_time(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                task_manager = await cluster.add()
                task_manager.refusal = Conflict("no room for the driver")
                await cluster.service.gateway.submit(graph(1))
                await cluster.reaches(JOB, JobStatus.RESTARTING)
                task_manager.refusal = None
                await cluster.holds(lambda: cluster.host(JOB, 2))

        in_virtual_time(scenario)

    def test_the_jobmanager_s_own_stall_is_nobody_s_silence(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                master = await cluster.run_job()
                clock = service._system.clock
                frozen = clock.monotonic
                clock.monotonic = lambda: frozen() + 3600.0  # type: ignore[method-assign]
                await asyncio.sleep(1.0)
                await master.beat()
                assert (await cluster.view(JOB)).status is JobStatus.RUNNING
                assert len(await service.gateway.task_managers()) == 1

        in_virtual_time(scenario)


class TestCancel:
    def test_a_running_job(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                task_manager = await cluster.add()
                master = await cluster.run_job()
                await service.gateway.cancel(JOB)
                await service.gateway.cancel(JOB)
                await cluster.holds(lambda: task_manager.stopped)
                assert (await master.beat()).known
                task_manager.exits(JOB, 1, KILLED)
                view = await cluster.reaches(JOB, JobStatus.CANCELED)
                assert view.exit_code == 130
                await service.gateway.cancel(JOB)
                await cluster.holds(lambda: not task_manager.drivers)

        in_virtual_time(scenario)

    def test_a_waiting_job(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await service.gateway.submit(graph(1))
                await service.gateway.cancel(JOB)
                await cluster.reaches(JOB, JobStatus.CANCELED)

        in_virtual_time(scenario)

    def test_what_is_not_there_or_has_ended(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                with pytest.raises(Absent):
                    await service.gateway.cancel(JOB)
                master = await cluster.run_job()
                await master.ends(SUCCESS)
                await cluster.reaches(JOB, JobStatus.FINISHED)
                with pytest.raises(Conflict, match="FINISHED"):
                    await service.gateway.cancel(JOB)

        in_virtual_time(scenario)


@pytest.mark.req("HA-5")
class TestRecovery:
    def test_a_live_driver_is_attached_again_without_a_restart(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading():
                task_manager = await cluster.add()
                master = await cluster.run_job(count=2)
                await cluster.holds(lambda: len(task_manager.allocations) == 2)
            held = set(task_manager.allocations)
            async with cluster.leading() as service:
                master.service = service
                assert (await cluster.view(JOB)).status is JobStatus.INITIALIZING
                assert not (await master.beat(2)).known
                await master.register(2)
                for _ in range(30):
                    await asyncio.sleep(1.0)
                    assert (await master.beat(2)).missing == ""
                view = await cluster.view(JOB)
                assert (view.status, view.attempt) == (JobStatus.RUNNING, 1)
                assert set(task_manager.allocations) == held
                assert len(task_manager.started) == 1
                assert not task_manager.stopped

        in_virtual_time(scenario)

    def test_a_job_whose_driver_is_gone_gets_the_next_attempt(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)
            async with cluster.leading():
                task_manager = await cluster.add()
                await cluster.run_job()
            task_manager.drivers.clear()
            async with cluster.leading():
                began = cluster.loop.time()
                await cluster.next_jobmaster(JOB, 2)
                assert store.handles[JOB] == 2
                lease = cluster.configuration[DRIVER_LEASE]
                assert cluster.loop.time() - began < lease / 2, "its task manager has said that it has no driver"

        in_virtual_time(scenario)

    def test_the_next_leader_shows_the_attempts_that_earlier_ones_have_begun(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                task_manager = await cluster.add()
                await cluster.run_job()
                lost = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by signal 9: out of memory")
                task_manager.exits(JOB, 1, lost)
                await task_manager.beat()
                await cluster.next_jobmaster(JOB, 2)
                shown = await cluster.view(JOB)
                await asyncio.sleep(2.0)
            async with cluster.leading():
                await asyncio.sleep(1.0)
                found = await cluster.view(JOB)
            assert found.attempts == shown.attempts
            assert [each.outcome for each in found.attempts] == [lost, None]
            assert found.exceptions == shown.exceptions

        in_virtual_time(scenario)

    def test_a_task_manager_that_does_not_come_back_is_waited_for(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                task_manager = await cluster.add()
                await cluster.run_job()
            cluster.silent.add(task_manager.info.instance)
            async with cluster.leading():
                began = cluster.loop.time()
                await cluster.add("tm-2")
                await cluster.next_jobmaster(JOB, 2)
                assert cluster.loop.time() - began >= cluster.configuration[DRIVER_LEASE]

        in_virtual_time(scenario)

    def test_the_end_of_a_driver_is_not_lost_between_two_leaders(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                task_manager = await cluster.add()
                await cluster.run_job()
            task_manager.exits(JOB, 1, SUCCESS)
            async with cluster.leading():
                await cluster.reaches(JOB, JobStatus.FINISHED)
                await cluster.holds(lambda: not task_manager.drivers)

        in_virtual_time(scenario)

    @pytest.mark.req("HA-10")
    def test_an_unreadable_graph_fails_its_job_and_holds_up_no_other(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            await store.open()
            for number in (1, 2):
                await store.create(graph(number))
            await store.close()
            store.disk.damage(graph(1).job_id)
            cluster = SmallCluster(store)
            async with cluster.leading():
                await cluster.add()
                view = await cluster.reaches(graph(1).job_id, JobStatus.FAILED)
                assert view.root_cause.startswith(f"memory, {graph(1).job_id}"), "where it lies"
                assert view.graph is None
                await cluster.next_jobmaster(graph(2).job_id, 1)

        in_virtual_time(scenario)

    def test_ended_jobs_stay_visible_up_to_the_limit(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store, {"jobstore.max-capacity": "2"})
            async with cluster.leading() as service:
                await cluster.add()
                for number in (1, 2, 3):
                    master = await cluster.run_job(number)
                    await master.ends(SUCCESS)
                    await cluster.reaches(graph(number).job_id, JobStatus.FINISHED)
                    cluster.task_managers[0].drivers.clear()
                    await asyncio.sleep(3.0)
                kept = {graph(2).job_id, graph(3).job_id}
                assert {view.job_id for view in await service.gateway.jobs()} == kept
                await cluster.holds(lambda: set(store.recorded) == kept)
            async with cluster.leading() as service:
                assert {view.job_id for view in await service.gateway.jobs()} == kept

        in_virtual_time(scenario)

    def test_a_store_that_is_away_at_the_start_is_waited_for(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            store.before = {"open": [RetryLater("busy")], "recover": [RetryLater("busy")], "results": [RetryLater("")]}
            cluster = SmallCluster(store)
            async with cluster.leading() as service:
                assert service.gateway.epoch() == 1

        in_virtual_time(scenario)


class TestFencing:
    def test_a_deposed_jobmanager_stops(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store)

            async def lead() -> None:
                async with cluster.leading():
                    await cluster.add()
                    store.before["record_attempt"] = [Conflict("epoch 2 leads")]
                    await cluster.service.gateway.submit(graph(1))
                    await asyncio.sleep(5.0)

            with pytest.raises(Conflict, match="epoch 2 leads"):
                await lead()
            assert store.closed

        in_virtual_time(scenario)

    def test_no_answer_before_recovery_and_after_the_end(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            with pytest.raises(RetryLater, match="is not the leader"):
                await cluster.service.gateway.jobs()
            async with cluster.leading() as service:
                await service.gateway.jobs()
            with pytest.raises(RetryLater, match="is not the leader"):
                await service.gateway.jobs()

        in_virtual_time(scenario)

    @pytest.mark.req("HA-7")
    def test_what_belongs_to_no_present_attempt_is_stale(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading():
                task_manager = await cluster.add()
                stranger = FakeJobMaster(cluster.service, JobId("f" * 32), 1)
                with pytest.raises(Conflict):
                    await stranger.register()
                request = AllocateSlot(
                    epoch=1,
                    allocation_id="a" * 32,  # type: ignore[arg-type]
                    job_id=stranger.job_id,
                    attempt=1,
                    profile=task_manager.info.total,
                    job_master="jm:9",
                )
                await task_manager.serve(request)
                reply = await task_manager.beat()
                assert reply.stale == (AttemptKey(job_id=stranger.job_id, attempt=1),)

        in_virtual_time(scenario)

    @pytest.mark.req("LOC-5")
    def test_task_managers_are_told_which_jobs_have_ended_and_keep_what_others_may_come_back_for(self) -> None:
        async def scenario() -> None:
            store = FailingStore()
            cluster = SmallCluster(store, {"restart-strategy.fixed-delay.delay": "10m"})
            stranger = JobId("f" * 32)
            async with cluster.leading():
                task_manager = await cluster.add()
                master = await cluster.run_job(1)
                other = await cluster.run_job(2)
                jobs = (master.job_id, other.job_id, stranger)
                task_manager.left = jobs
                assert (await task_manager.beat()).ended == (stranger,)
                task_manager.exits(master.job_id, 1, AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message="gone"))
                await cluster.reaches(master.job_id, JobStatus.RESTARTING)
                assert (await task_manager.beat()).ended == (stranger,), "its next attempt waits for a pause"
                task_manager.exits(other.job_id, 1, AttemptOutcome(exit_code=0))
                await cluster.reaches(other.job_id, JobStatus.FINISHED)
                assert (await task_manager.beat()).ended == (other.job_id, stranger)
            async with cluster.leading():
                await cluster.holds(lambda: task_manager.service is cluster.service)
                await task_manager.register()
                assert (await task_manager.beat()).ended == (other.job_id, stranger), "the next leader knows it, too"

        in_virtual_time(scenario)

    def test_two_processes_with_one_id(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                first = await cluster.add()
                elsewhere = FakeTaskManager(service, "tm-1", instance="2", host="10.0.0.9")
                with pytest.raises(Conflict, match=r"taskmanager\.resource-id"):
                    await elsewhere.register()
                later = FakeTaskManager(service, "tm-1", instance="4", started_ms=2)
                with pytest.raises(Conflict, match="is in use by"):
                    await later.register()
                await first.beat()
                again = FakeTaskManager(service, "tm-1", instance="3", predecessor=first.info.instance)
                await again.register()
                with pytest.raises(Conflict, match="has been restarted"):
                    await first.beat()
                with pytest.raises(Conflict, match="its previous instance"):
                    await first.register()

        in_virtual_time(scenario)

    def test_a_heartbeat_of_an_unknown_task_manager_asks_it_to_register(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                assert not (await FakeTaskManager(service).beat()).known
                with pytest.raises(InvalidInput):
                    await service.serve(AttemptKey(job_id=JOB, attempt=1))

        in_virtual_time(scenario)


def test_what_is_missing_is_said_to_people_and_to_the_jobmaster() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
            view = await cluster.view(JOB)
            assert view.waiting == "no place for the driver (640 MiB): no task manager is registered"
            await cluster.add(slots=1)
            master = await cluster.next_jobmaster(JOB, 1)
            await master.beat(3)
            await asyncio.sleep(2.0)
            text = "2 of 3 slots (1 core and 1024 MiB each) are missing: the only slot is taken"
            assert (await master.beat(3)).missing == text
            assert (await service.gateway.jobs())[0].waiting == text

    in_virtual_time(scenario)


def test_a_job_without_a_driver_place_fails_in_time_and_says_why() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1, options={"slot.request.timeout": "30s"}))
            view = await cluster.reaches(JOB, JobStatus.FAILED)
            assert view.root_cause == (
                "after 30 s there is no place for the driver (640 MiB): no task manager is registered"
            )

    in_virtual_time(scenario)


def test_exceptions_of_the_jobmaster_are_kept_beyond_its_attempt() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            task_manager = await cluster.add()
            master = await cluster.run_job()
            entry = ExceptionEntry(timestamp_ms=1, attempt=1, kind="executor", message="executor 0 was lost")
            await master.beat(exceptions=(entry,))
            await master.beat(exceptions=(entry,))
            task_manager.exits(JOB, 1, KILLED)
            await cluster.next_jobmaster(JOB, 2)
            view = await cluster.view(JOB)
            assert [known.message for known in view.exceptions] == ["executor 0 was lost", "killed by SIGKILL"]

    in_virtual_time(scenario)


def test_a_late_report_of_a_task_manager_changes_nothing() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            early = task_manager.report()
            master = await cluster.run_job(count=1)
            await cluster.holds(lambda: task_manager.allocations)
            await task_manager.beat()
            await service.serve(RegisterTaskManager(info=task_manager.info, report=early))
            view = await service.gateway.task_manager(task_manager.info.id)
            assert (view.free_slots, view.free_driver_places) == (3, 3)
            assert (await master.beat(1)).missing == ""
            assert view.info == msgspec.structs.replace(task_manager.info)

    in_virtual_time(scenario)

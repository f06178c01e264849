"""Drivers on evacuated nodes, as task managers and JobMasters see it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emberkeep.base.errors import Conflict, RetryLater, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, EvacuatedDrivers, Place, PlaceKind
from emberkeep.chronicle.occurrence import What
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages.job_masters import JobMasterReply
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_managers import StartDriver
from tests.support.simulator.scripts import STREAM
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
ONCE = {"restart-strategy.type": "none", "blocklist.evacuation.timeout": "100s"}
MOVED = AttemptOutcome(exit_code=0, kind=FailureKind.MOVED, message="as asked")
TOLD_TO_END = AttemptOutcome(exit_code=143, kind=FailureKind.LOST, message="the script was ended by SIGTERM")


def evacuated(drivers: EvacuatedDrivers = EvacuatedDrivers.RESTART, node: str = "tm-1") -> BlockedNode:
    action = BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS
    return BlockedNode(id=node, action=action, start_ms=0, causes=("power",), drivers=drivers)


async def asked(master: FakeJobMaster, **more: Any) -> JobMasterReply:
    """The first answer that asks for something."""
    async with asyncio.timeout(600):
        while (reply := await master.beat(**more)).procedure is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)
    return reply


async def job_beside_an_empty_node(cluster: SmallCluster) -> tuple[FakeTaskManager, FakeJobMaster]:
    """The job runs on tm-1."""
    home = await cluster.add("tm-1")
    master = await cluster.run_job()
    await cluster.add("tm-2")
    return home, master


async def started_elsewhere(cluster: SmallCluster, gone: FakeTaskManager, outcome: AttemptOutcome) -> None:
    """The driver ends, and the next attempt runs on the other task manager; nothing has failed."""
    gone.exits(JOB, 1, outcome)
    await cluster.next_jobmaster(JOB, 2)
    view = await cluster.reaches(JOB, JobStatus.RUNNING)
    assert [record.task_manager for record in view.attempts] == ["tm-1", "tm-2"]
    assert view.attempts[0].outcome == AttemptOutcome(
        exit_code=0, kind=FailureKind.MOVED, message="moved from node tm-1"
    )
    assert not view.exceptions


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize("drivers", EvacuatedDrivers)
def test_a_streaming_job_is_asked_to_move_also_by_the_next_leader(drivers: EvacuatedDrivers) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            assert (await master.beat(queries=(STREAM,))).procedure is None
            await service.gateway.block(evacuated(drivers), merge=False)
            reply = await asked(master, queries=(STREAM,))
            assert reply.procedure is not None
            assert reply.procedure.procedure is Procedure.MOVE
            assert not home.stopped
        async with cluster.leading() as service:
            master.service = service
            await cluster.holds(lambda: len(cluster.host(JOB, 1)) == 1)
            again = await master.register(queries=(STREAM,))
            assert again.procedure == reply.procedure
            await master.ends(MOVED)
            await started_elsewhere(cluster, home, MOVED)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-18")
def test_one_that_cannot_move_is_asked_again_and_restarted_in_the_end() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            savepoint = ProcedureRequest(
                trigger_id="a" * 32, procedure=Procedure.SAVEPOINT, target_directory="/s", deadline_ms=10**15
            )
            await service.gateway.request_procedure(JOB, savepoint)
            await master.beat(queries=(STREAM,))
            began = cluster.loop.time()
            await service.gateway.block(evacuated(), merge=False)
            assert (await asked(master, queries=(STREAM,))).procedure == savepoint, "one thing after the other"

            done: ProcedureProgress | None = ProcedureProgress(
                trigger_id=savepoint.trigger_id, phase=ProcedurePhase.FAILED, failure="no space left"
            )
            triggers = []
            while not home.stopped:
                reply = await master.beat(queries=(STREAM,), procedure=done)
                wanted = reply.procedure
                if wanted is not None and wanted.procedure is Procedure.MOVE and wanted.trigger_id not in triggers:
                    triggers.append(wanted.trigger_id)
                    done = ProcedureProgress(
                        trigger_id=wanted.trigger_id, phase=ProcedurePhase.FAILED, failure="a batch does not end"
                    )
                await asyncio.sleep(1.0)
            assert 5 <= len(triggers) <= 11, "not at once, but again"
            assert 100.0 <= cluster.loop.time() - began < 110.0
            await started_elsewhere(cluster, home, TOLD_TO_END)
            stream = cluster.chronicle.stream(JOB)
        told = [each for each in stream if each.what == What.MOVING or each.details.get("procedure") == "MOVE"]
        assert [each.message for each in told] == [
            *len(triggers) * ["the JobManager asked for a move to another node than tm-1"],
            "the driver leaves node tm-1",
        ]
        assert {(each.node, each.task_manager) for each in told} == {("tm-1", "tm-1")}

    in_virtual_time(scenario)


FAILURE = "snapshot_state of alerts.Alerts: OSError: no space left"
FUNCTIONS = ("alerts.Alerts", "counter")


def left_without_state(where: str) -> str:
    return (
        f"the driver must leave {where} and is restarted without the current state of these functions: alerts.Alerts, "
        f"counter. They continue with their state in the newest savepoint or planned move. The driver could not leave "
        f"by itself: {FAILURE}"
    )


async def asked_in_vain(cluster: SmallCluster, master: FakeJobMaster, seconds: float) -> list[str]:
    """A stream whose functions fail, for so long. Returns by which requests it was asked to move."""
    triggers: list[str] = []
    done: ProcedureProgress | None = None
    until = cluster.loop.time() + seconds
    while cluster.loop.time() < until:
        wanted = (await master.beat(queries=(STREAM,), functions=FUNCTIONS, procedure=done)).procedure
        if wanted is not None and wanted.trigger_id not in triggers:
            triggers.append(wanted.trigger_id)
            done = ProcedureProgress(trigger_id=wanted.trigger_id, phase=ProcedurePhase.FAILED, failure=FAILURE)
        await asyncio.sleep(1.0)
    return triggers


@pytest.mark.req("SAFE-19")
def test_where_the_patience_is_over_the_job_says_which_functions_go_on_without_their_state() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            await master.beat(queries=(STREAM,))
            await service.gateway.block(evacuated(), merge=False)
            await asked_in_vain(cluster, master, seconds=90.0)
            assert not home.stopped
            view = await cluster.view(JOB)
            assert view.waiting == f"its driver to leave its node, which was not possible so far: {FAILURE}"
            assert not view.exceptions
            await asked_in_vain(cluster, master, seconds=20.0)
            assert home.stopped
            home.exits(JOB, 1, TOLD_TO_END)
            await cluster.next_jobmaster(JOB, 2)
            view = await cluster.reaches(JOB, JobStatus.RUNNING)
            (entry,) = view.exceptions
            assert entry.message == left_without_state("node tm-1")
            assert (entry.kind, entry.attempt) == ("FunctionStateLost", 1)

    in_virtual_time(scenario)


def test_why_a_driver_could_not_leave_is_not_shown_while_the_job_waits_for_something_else() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            await master.beat(queries=(STREAM,))
            await service.gateway.block(evacuated(), merge=False)
            await asked_in_vain(cluster, master, seconds=20.0)
            await service.gateway.cancel(JOB)
            await cluster.holds(lambda: home.stopped)
            view = await cluster.view(JOB)
            assert view.waiting == "the end of the driver of attempt 1 on task manager tm-1"

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-19")
def test_an_evacuation_of_a_node_that_drains_has_its_whole_patience() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            await service.gateway.stop_task_manager(TaskManagerId("tm-1"), drain=3600.0)
            await asked_in_vain(cluster, master, seconds=500.0)
            await service.gateway.block(evacuated(), merge=False)
            await asked_in_vain(cluster, master, seconds=90.0)
            assert not home.stopped
            await asked_in_vain(cluster, master, seconds=20.0)
            assert home.stopped

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-19")
def test_a_savepoint_that_takes_longer_than_the_patience_is_not_aborted() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            savepoint = ProcedureRequest(
                trigger_id="a" * 32, procedure=Procedure.SAVEPOINT, target_directory="/s", deadline_ms=10**15
            )
            await service.gateway.request_procedure(JOB, savepoint)
            await master.beat(queries=(STREAM,))
            await service.gateway.block(evacuated(), merge=False)
            copying = ProcedureProgress(trigger_id=savepoint.trigger_id, phase=ProcedurePhase.COPYING)
            for _ in range(300):
                await master.beat(queries=(STREAM,), procedure=copying)
                await asyncio.sleep(1.0)
            assert not home.stopped
            done = ProcedureProgress(
                trigger_id=savepoint.trigger_id, phase=ProcedurePhase.FAILED, failure="no space left"
            )
            reply = await asked(master, queries=(STREAM,), procedure=done)
            while reply.procedure is None or reply.procedure.procedure is not Procedure.MOVE:
                reply = await asked(master, queries=(STREAM,), procedure=done)
                await asyncio.sleep(1.0)
            assert not home.stopped, "it is asked to move, and has the whole patience for that"
            await master.ends(MOVED)
            await started_elsewhere(cluster, home, MOVED)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize("restarted", [True, False])
def test_a_driver_without_a_stream_is_restarted_or_waits(restarted: bool) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await job_beside_an_empty_node(cluster)
            await service.gateway.block(evacuated(EvacuatedDrivers.WAIT), merge=False)
            for _ in range(200):
                assert (await master.beat()).procedure is None
                await asyncio.sleep(1.0)
            assert not home.stopped
            if restarted:
                await service.gateway.block(evacuated(EvacuatedDrivers.RESTART), merge=True)
                await cluster.holds(lambda: home.stopped)
                await master.ends(TOLD_TO_END)
                await started_elsewhere(cluster, home, TOLD_TO_END)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize("leaves", [False, True])
def test_without_another_place_the_job_waits_longer_than_for_one_that_is_taken_and_goes_on_after_the_block(
    leaves: bool,
) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), {**ONCE, "slot.request.timeout": "20s"})
        async with cluster.leading() as service:
            home = await cluster.add("tm-1")
            await cluster.run_job()
            await service.gateway.block(evacuated(), merge=False)
            await cluster.holds(lambda: home.stopped)
            home.exits(JOB, 1, TOLD_TO_END)
            await cluster.reaches(JOB, JobStatus.RESTARTING)
            await asyncio.sleep(200.0)
            view = await cluster.view(JOB)
            assert view.status is JobStatus.RESTARTING
            assert "on blocked nodes" in view.waiting
            if leaves:
                cluster.silent.add(home.info.instance)  # it is stopped for the repair
                await asyncio.sleep(200.0)
                view = await cluster.view(JOB)
                assert view.status is JobStatus.RESTARTING
                assert view.waiting.endswith("blocked and without a task manager now: node tm-1")
                cluster.silent.clear()
            await service.gateway.unblock(Place(PlaceKind.NODE, "tm-1"))
            await cluster.next_jobmaster(JOB, 2)
            await cluster.reaches(JOB, JobStatus.RUNNING)

    in_virtual_time(scenario)


def blocked(action: BlockAction) -> BlockedNode:
    return BlockedNode(id="tm-1", action=action, start_ms=0, causes=("fan",))


async def moving(cluster: SmallCluster) -> int | None:
    """Drivers that are said to leave tm-1."""
    evacuation = (await cluster.service.gateway.task_manager(TaskManagerId("tm-1"))).evacuation
    return None if evacuation is None else evacuation.drivers_moving


@pytest.mark.req("BLK-2")
@pytest.mark.parametrize("action", BlockAction)
@pytest.mark.parametrize("comes_up", [True, False])
def test_an_order_to_start_that_was_not_taken_is_not_repeated_on_a_blocked_node(
    action: BlockAction, comes_up: bool
) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home = await cluster.add("tm-1")
            home.refusal = UnknownOutcome("no answer")
            await service.gateway.submit(graph(1))
            await cluster.holds(lambda: home.started)
            await service.gateway.block(blocked(action), merge=False)
            orders, began = len(home.started), cluster.loop.time()
            evacuated = action is not BlockAction.MARK_BLOCKED
            assert await moving(cluster) == (1 if evacuated else None)
            await cluster.add("tm-2")
            if comes_up:  # the order has arrived all the same
                await cluster.holds(lambda: home.stopped)
                late = FakeJobMaster(service, JOB, 1, "tm-1")
                with pytest.raises(Conflict, match="was abandoned"):
                    await late.register()
            await cluster.next_jobmaster(JOB, 2)
            assert len(home.started) == orders
            assert 20.0 <= cluster.loop.time() - began < 40.0, "the lease, as the first one may have come up"
            assert await moving(cluster) == (0 if evacuated else None)
            view = await cluster.reaches(JOB, JobStatus.RUNNING)
            assert [record.task_manager for record in view.attempts] == ["tm-1", "tm-2"]
            assert view.attempts[0].outcome == AttemptOutcome(
                exit_code=0, kind=FailureKind.MOVED, message="moved from node tm-1"
            )
            assert not view.exceptions

    in_virtual_time(scenario)


@pytest.mark.req("BLK-2")
def test_an_order_that_is_under_way_may_still_be_taken_where_the_node_is_only_blocked() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home = await cluster.add("tm-1")
            answered = asyncio.Event()
            serve = home.serve

            async def slowly(request: Message) -> Message:
                if isinstance(request, StartDriver):
                    await answered.wait()
                return await serve(request)

            home.serve = slowly  # type: ignore[method-assign]
            await service.gateway.submit(graph(1))
            await cluster.reaches(JOB, JobStatus.INITIALIZING)
            await service.gateway.block(blocked(BlockAction.MARK_BLOCKED), merge=False)
            await cluster.add("tm-2")
            await asyncio.sleep(5.0)
            answered.set()
            await cluster.next_jobmaster(JOB, 1)
            assert cluster.host(JOB, 1) == [home]
            assert not cluster.stops()

    in_virtual_time(scenario)


@pytest.mark.req("BLK-2")
@pytest.mark.parametrize("action", BlockAction)
def test_a_place_that_was_granted_is_not_used_once_its_node_is_blocked(action: BlockAction) -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store, ONCE)
        async with cluster.leading() as service:
            home = await cluster.add("tm-1")
            store.before["record_attempt"] = [RetryLater("busy")] * 100
            await service.gateway.submit(graph(1))
            await cluster.holds(lambda: store.calls["record_attempt"])
            assert (await service.gateway.task_manager(home.info.id)).free_driver_places == 3
            await service.gateway.block(blocked(action), merge=False)
            assert (await service.gateway.task_manager(home.info.id)).free_driver_places == 4, "it is kept for nobody"
            other = await cluster.add("tm-2")
            store.before["record_attempt"].clear()
            await cluster.reaches(JOB, JobStatus.INITIALIZING)
            await cluster.holds(lambda: other.started)
            assert not home.started

    in_virtual_time(scenario)

"""Task managers that a JobManager starts and stops itself, through a resource driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest
from structlog.testing import capture_logs

from emberkeep.base.configuration.options.resource_drivers import IDLE_TIMEOUT, MAX_SLOTS, START_RETRY_INTERVAL
from emberkeep.base.errors import Conflict, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.chronicle.occurrence import What
from emberkeep.chronicle.selection import Selection
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.protocol.messages.root import Message
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.resource_driver import NodeOutage, StartedTaskManager
from tests.support.resource_drivers.memory_nodes import SPEC, MemoryNodes
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = pytest.mark.req("BLK-9")

JOB = graph(1).job_id
SETTINGS = {IDLE_TIMEOUT.key: "30s", START_RETRY_INTERVAL.key: "5s"}
ONE_AT_MOST = {MAX_SLOTS.key: str(SPEC.slots)}


def supplied(
    scenario: Callable[[SmallCluster, MemoryNodes], Awaitable[None]],
    settings: Mapping[str, str] = MappingProxyType({}),
    kind: type[MemoryNodes] = MemoryNodes,
) -> None:
    async def run() -> None:
        nodes = kind()
        cluster = SmallCluster(FailingStore(), {**SETTINGS, **settings}, resource_driver=nodes)

        async def registers(started: StartedTaskManager) -> None:
            await cluster.add(started.id, node_id=started.node_id)

        nodes.on_start = registers
        async with cluster.leading():
            await scenario(cluster, nodes)

    in_virtual_time(run)


def test_one_is_started_for_a_job_and_told_to_end_when_it_has_been_idle_for_long() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        master = await cluster.run_job()
        (task_manager,) = cluster.task_managers
        await asyncio.sleep(60.0)
        assert task_manager.ending == [], "a driver runs there"
        await master.ends(AttemptOutcome(exit_code=0))
        task_manager.exits(JOB, 1, AttemptOutcome(exit_code=0))
        await cluster.reaches(JOB, JobStatus.FINISHED)
        await asyncio.sleep(25.0)
        assert task_manager.ending == []
        await asyncio.sleep(10.0)
        (order,) = task_manager.ending
        assert order.instance == task_manager.info.instance

    supplied(scenario)


def test_one_whose_process_has_ended_is_started_again_while_a_job_uses_it() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        await cluster.run_job()
        (known,) = nodes.listed.values()
        nodes.dies(known.id)
        await asyncio.sleep(2.0)
        assert nodes.revived == [known.id]

    supplied(scenario)


def test_people_are_warned_once_of_what_cannot_be_started_and_the_job_waits() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        nodes.refusal = RetryLater("no such image")
        with capture_logs() as said:
            await cluster.service.gateway.submit(graph(1))
            await asyncio.sleep(20.0)
        warnings = [line["event"] for line in said if line["event"].startswith("cannot start")]
        assert warnings == ["cannot start a task manager: no such image"]
        nodes.refusal = None
        await cluster.next_jobmaster(JOB, 1)

    supplied(scenario)


def test_what_the_platform_refuses_is_shown_as_a_problem_and_as_an_event_until_it_is_over() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        nodes.refusal = RetryLater("Slurm refuses: invalid account")
        await cluster.service.gateway.submit(graph(1))
        await asyncio.sleep(20.0)
        said = "cannot start a task manager: Slurm refuses: invalid account"
        assert cluster.service.problem == said
        began = cluster.service.problem_since_ms
        await asyncio.sleep(100.0)  # it is tried again and again
        assert cluster.service.problem_since_ms == began > 0
        page = await cluster.chronicle.read("", Selection(types=frozenset({What.TASK_MANAGER_NOT_STARTED})))
        assert [each.message for each in page.occurrences] == [said]
        nodes.refusal = None
        await cluster.next_jobmaster(JOB, 1)
        await asyncio.sleep(60.0)
        assert cluster.service.problem == ""

    supplied(scenario)


def test_an_outage_of_the_platform_starts_and_ends_nothing() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        await cluster.run_job()
        (known,) = nodes.listed.values()
        nodes.outage = Unavailable("`squeue` failed")
        await asyncio.sleep(120.0)
        assert "squeue" in cluster.service.problem
        nodes.outage = None
        await asyncio.sleep(61.0)
        assert cluster.service.problem == ""
        assert list(nodes.listed.values()) == [known]
        assert nodes.revived == []

    supplied(scenario)


@pytest.mark.req("SAFE-10")
def test_a_leader_that_cannot_confirm_that_it_leads_starts_again_and_ends_nothing() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        await cluster.run_job()
        (used,) = nodes.listed.values()
        unused = StartedTaskManager(TaskManagerId("tm-1"), "node-1")
        nodes.listed[unused.id] = unused
        cluster.service.pause()
        nodes.dies(used.id)
        nodes.dies(unused.id)
        await asyncio.sleep(60.0)
        assert set(nodes.listed) == {used.id, unused.id}
        assert nodes.revived == []
        cluster.service.resume()
        await cluster.holds(lambda: set(nodes.listed) == {used.id})
        assert nodes.revived == [used.id]

    supplied(scenario)


@pytest.mark.req("SAFE-10")
def test_a_leader_that_cannot_confirm_that_it_leads_starts_nothing() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        nodes.outage = Unavailable("`squeue` failed")
        await cluster.service.gateway.submit(graph(1))
        cluster.service.pause()
        nodes.outage = None
        await asyncio.sleep(60.0)
        assert nodes.listed == {}
        cluster.service.resume()
        await cluster.next_jobmaster(JOB, 1)

    supplied(scenario)


@pytest.mark.req("SAFE-10")
def test_a_leader_that_another_one_has_replaced_ends_none_of_its_task_managers_and_stops() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        started = StartedTaskManager(TaskManagerId("tm-0"), "node-0")
        nodes.listed[started.id] = started
        await asyncio.sleep(100.0)
        assert isinstance(cluster.store, FailingStore)
        cluster.store.disk.epoch += 1  # the next leader, with which it has registered
        await asyncio.sleep(100.0)
        assert list(nodes.listed) == [started.id]

    with pytest.raises(Conflict):
        supplied(scenario)


@pytest.mark.req("SAFE-10")
def test_a_leader_that_is_replaced_while_the_platform_is_slow_makes_no_further_change_there() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        for number in (0, 1):
            dead = StartedTaskManager(TaskManagerId(f"tm-{number}"), f"node-{number}", alive=False)
            nodes.listed[dead.id] = dead
        assert isinstance(nodes, SlowNodes)
        assert isinstance(cluster.store, FailingStore)
        await cluster.holds(lambda: nodes.ending)
        cluster.store.disk.epoch += 1
        await asyncio.sleep(60.0)
        assert nodes.ending == ["tm-0"]
        assert set(nodes.listed) == {"tm-1"}

    with pytest.raises(Conflict):
        supplied(scenario, kind=SlowNodes)


async def once_led(store: FailingStore, nodes: MemoryNodes) -> SmallCluster:
    """Return a cluster with a job, whose leader and task managers are gone."""
    cluster = SmallCluster(store, SETTINGS, resource_driver=nodes)

    async def registers(started: StartedTaskManager) -> None:
        await cluster.add(started.id, node_id=started.node_id)

    nodes.on_start = registers
    async with cluster.leading():
        await cluster.run_job()
    cluster.task_managers.clear()
    return cluster


def test_a_new_leader_that_was_in_doubt_at_its_first_look_starts_those_again_that_died_with_the_one_before_it() -> None:
    async def run() -> None:
        store, nodes = FailingStore(), MemoryNodes()
        cluster = await once_led(store, nodes)
        (used,) = nodes.listed.values()
        nodes.dies(used.id)
        store.before["confirm"] = [RetryLater("away")] * 4
        async with cluster.leading():
            await cluster.holds(lambda: nodes.revived == [used.id])
            assert store.before["confirm"] == []

    in_virtual_time(run)


def test_a_new_leader_that_falls_into_doubt_between_two_starts_makes_the_second_one_later() -> None:
    async def run() -> None:
        store = FailingStore()
        nodes = NodesOfALeaderInDoubt(store)
        dead = [StartedTaskManager(TaskManagerId(f"tm-{number}"), f"node-{number}") for number in range(2)]
        cluster = await once_led(store, nodes)
        for each in dead:
            nodes.listed[each.id] = each
            nodes.dies(each.id)
        async with cluster.leading():
            await cluster.holds(lambda: nodes.revived == [each.id for each in dead])

    in_virtual_time(run)


@pytest.mark.req("BLK-20")
def test_a_node_that_the_platform_takes_out_of_service_is_blocked_until_it_is_back() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        await cluster.run_job()
        (known,) = nodes.listed.values()
        gateway = cluster.service.gateway
        nodes.out = (NodeOutage(known.node_id, "Slurm: disk is failing"), NodeOutage("elsewhere", "Slurm: old"))
        await asyncio.sleep(2.0)
        (entry,) = (await gateway.blocklist()).entries
        assert (entry.id, entry.causes) == (known.node_id, ("out of service: Slurm: disk is failing",))
        page = await cluster.chronicle.read("", Selection(types=frozenset({What.BLOCKED})))
        assert page.occurrences[0].message.startswith(f"resource manager blocked node {known.node_id}: out of service")
        nodes.out = ()
        await asyncio.sleep(2.0)
        assert (await gateway.blocklist()).entries == ()

    supplied(scenario)


@pytest.mark.req("BLK-20")
def test_a_node_that_was_back_for_a_while_is_blocked_again_as_no_operator_has_unblocked_it() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        await cluster.run_job()
        (known,) = nodes.listed.values()
        gateway = cluster.service.gateway
        outage = NodeOutage(known.node_id, "Slurm: disk is failing", since_ms=1)  # Slurm keeps the time of its reason
        for out in ((outage,), (), (outage,)):
            nodes.out = out
            await asyncio.sleep(2.0)
            assert len((await gateway.blocklist()).entries) == len(out)
        page = await cluster.chronicle.read("", Selection(types=frozenset({What.UNBLOCKED})))
        (unblocked,) = page.occurrences
        assert unblocked.message == f"resource manager unblocked node {known.node_id}"
        assert unblocked.by == "resource manager"
        (removal,) = (await gateway.blocklist()).removals
        assert not removal.by_hand

    supplied(scenario)


@pytest.mark.req("BLK-20")
def test_a_block_that_an_operator_makes_while_the_platform_unblocks_stays() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        for number in (0, 1):
            started = StartedTaskManager(TaskManagerId(f"tm-{number}"), f"node-{number}")
            nodes.listed[started.id] = started
            await nodes.on_start(started)
        gateway = cluster.service.gateway
        nodes.out = (NodeOutage("node-0", "Slurm: x"), NodeOutage("node-1", "Slurm: x"))
        await asyncio.sleep(2.0)
        assert isinstance(cluster.store, FailingStore)
        failures = cluster.store.before["record_blocklist"] = [RetryLater("away")]  # the first change takes a while
        nodes.out = ()
        await cluster.holds(lambda: not failures)
        mine = BlockedNode(id="node-1", action=BlockAction.MARK_BLOCKED, start_ms=1, causes=("fan is loud",))
        await gateway.block(mine, merge=True)
        await asyncio.sleep(5.0)
        (entry,) = (await gateway.blocklist()).entries
        assert (entry.id, entry.causes) == ("node-1", ("out of service: Slurm: x", "fan is loud"))

    supplied(scenario)


def test_one_that_cannot_be_ended_keeps_no_others_from_being_started() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        stuck = StartedTaskManager(TaskManagerId("tm-0"), "node-0", alive=False)
        nodes.listed[stuck.id] = stuck
        nodes.unending[stuck.id] = RetryLater("its process does not end")
        await cluster.run_job()
        assert set(nodes.listed) == {"tm-0", "tm-1"}
        assert cluster.service.problem == "cannot end task manager tm-0: its process does not end"
        nodes.unending.clear()
        await cluster.holds(lambda: set(nodes.listed) == {"tm-1"})

    supplied(scenario)


def test_people_are_told_again_if_the_next_one_of_the_same_id_cannot_be_ended_either() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        stuck = StartedTaskManager(TaskManagerId("tm-0"), "node-0", alive=False)
        nodes.unending[stuck.id] = RetryLater("its process does not end")
        with capture_logs() as said:
            for _ in range(2):
                nodes.listed[stuck.id] = stuck
                await asyncio.sleep(5.0)
                del nodes.listed[stuck.id]  # its process has ended by itself
                await asyncio.sleep(5.0)
        warned = [line for line in said if line["event"].startswith("cannot end task manager tm-0")]
        assert len(warned) == 2

    supplied(scenario)


def test_one_that_cannot_be_ended_counts_for_the_maximum() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        stuck = StartedTaskManager(TaskManagerId("tm-0"), "node-0", alive=False)
        nodes.listed[stuck.id] = stuck
        nodes.unending[stuck.id] = RetryLater("its process does not end")
        await cluster.service.gateway.submit(graph(1))
        await asyncio.sleep(30.0)
        assert set(nodes.listed) == {"tm-0"}
        nodes.unending.clear()
        await cluster.next_jobmaster(JOB, 1)

    supplied(scenario, ONE_AT_MOST)


async def silent_when_told_to_end(cluster: SmallCluster) -> tuple[FakeTaskManager, Hangs]:
    """Run a job to its end; its task manager, which is idle then, does not answer the order to end."""
    master = await cluster.run_job()
    (first,) = cluster.task_managers
    await master.ends(AttemptOutcome(exit_code=0))
    first.exits(JOB, 1, AttemptOutcome(exit_code=0))
    await cluster.reaches(JOB, JobStatus.FINISHED)
    hangs = Hangs()
    cluster.network.attach(first.info.address, hangs)
    await cluster.holds(lambda: hangs.requests)
    return first, hangs


def test_one_that_may_not_have_got_the_order_to_end_is_told_again_although_a_job_waits() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        first, _ = await silent_when_told_to_end(cluster)
        await cluster.service.gateway.submit(graph(2))
        cluster.network.attach(first.info.address, first)
        await cluster.holds(lambda: first.ending)
        cluster.task_managers.remove(first)
        nodes.dies(first.info.id)
        await cluster.next_jobmaster(graph(2).job_id, 1)

    supplied(scenario, ONE_AT_MOST)


def test_another_one_is_started_while_one_does_not_answer_its_order_to_end() -> None:
    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        _, hangs = await silent_when_told_to_end(cluster)
        await cluster.service.gateway.submit(graph(2))
        await asyncio.sleep(2.0)
        assert len(nodes.listed) == 2
        await asyncio.sleep(20.0)
        assert len(hangs.requests) > 1, "it is told again"

    supplied(scenario)


def test_one_that_may_have_got_the_order_to_end_is_not_used_again_because_it_refuses_the_next_order() -> None:
    """A task manager that ends accepts no more connections, and its last report may say nothing of its end yet."""

    async def scenario(cluster: SmallCluster, nodes: MemoryNodes) -> None:
        del nodes
        ends, told = cluster.service._seat.leader.resources.ends, await cluster.add("tm-9")
        cluster.network.attach(told.info.address, Hangs())
        with pytest.raises(UnknownOutcome):
            await ends.retire(told.info.id)
        cluster.network.detach(told.info.address)
        with pytest.raises(UnknownOutcome):
            await ends.retire(told.info.id)

    supplied(scenario)


@dataclass
class SlowNodes(MemoryNodes):
    """``ending``: the task managers of which an end was asked for, each of which takes five seconds."""

    ending: list[TaskManagerId] = field(default_factory=list)

    async def end(self, task_manager: TaskManagerId) -> None:
        self.ending.append(task_manager)
        await asyncio.sleep(5.0)
        await super().end(task_manager)


class NodesOfALeaderInDoubt(MemoryNodes):
    """It takes long to start the first task manager again; then the job store is away once."""

    def __init__(self, store: FailingStore) -> None:
        super().__init__()
        self._store = store

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        is_first = not self.revived
        await super().revive(task_manager, blocked)
        if is_first:
            await asyncio.sleep(60.0)
            self._store.before["confirm"] = [RetryLater("away")]


class Hangs:
    """A process that gets requests and never answers."""

    def __init__(self) -> None:
        self.requests: list[Message] = []

    async def serve(self, request: Message) -> Message:
        self.requests.append(request)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await answer

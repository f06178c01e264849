"""The JobManager's blocklist: durable before it is acknowledged, obeyed from then on, there again after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from emberkeep.base.errors import Absent, Conflict, Fatal, RetryLater, UnknownOutcome
from emberkeep.blocklist.model import PERMANENT, BlockAction, BlockedNode, Blocklist, Report
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.job_master_reports import Departure
from tests.support.simulator.virtual_loop import VirtualClock
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, executor_in, graph
from tests.unit.jobmanager.memory_store import FailingStore

MARK, EVACUATE = BlockAction.MARK_BLOCKED, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS


def node(name: str, action: BlockAction = MARK, end_ms: int = PERMANENT) -> BlockedNode:
    return BlockedNode(id=name, action=action, start_ms=0, end_ms=end_ms, causes=("disk",))


async def eventually(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)


@pytest.mark.req("BLK-6")
@pytest.mark.req("BLK-17")
def test_an_acknowledged_block_is_durable_and_found_by_the_next_job_manager() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            made = await service.gateway.block(node("tm-1"), merge=False)
            assert (made.entry, made.merged) == (node("tm-1"), False)
            with pytest.raises(Conflict):
                await service.gateway.block(node("tm-1"), merge=False)
            await service.gateway.block(node("tm-2", EVACUATE), merge=False)
            await service.gateway.unblock(node("tm-2").place)
            with pytest.raises(Absent):
                await service.gateway.unblock(node("tm-2").place)
            before = await service.gateway.blocklist()
        async with cluster.leading() as service:
            assert await service.gateway.blocklist() == before
            assert before.entries == (node("tm-1"),)
            await cluster.add("tm-1")
            await service.gateway.submit(graph())
            await asyncio.sleep(30.0)
            view = await cluster.view(graph().job_id)
            assert view.status is JobStatus.CREATED
            assert "all 4 driver places are on blocked nodes" in view.waiting
            assert (await service.gateway.task_managers())[0].blocked
            await service.gateway.unblock(node("tm-1").place)
            await cluster.next_jobmaster(graph().job_id, 1)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-6")
@pytest.mark.parametrize("what", ["unblock", "block another"])
def test_what_was_refused_as_an_entry_has_expired_is_not_listed_any_more(what: str) -> None:
    """Found by the level ``processes`` of the reliability lab: the list showed the entry for half a second longer."""

    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        clock = VirtualClock(cluster.loop)
        async with cluster.leading() as service:
            await service.gateway.block(node("tm-1"), merge=False)
            end = clock.now_ms() + 100
            await service.gateway.block(node("tm-2", end_ms=end), merge=False)
            await asyncio.sleep((end + 1 - clock.now_ms()) / 1000)
            if what == "unblock":
                with pytest.raises(Absent):
                    await service.gateway.unblock(node("tm-2").place)
            else:
                with pytest.raises(Conflict):
                    await service.gateway.block(node("tm-1"), merge=False)
            assert (await service.gateway.blocklist()).entries == (node("tm-1"),)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-6")
def test_a_block_takes_effect_although_the_resource_manager_is_overloaded_at_first() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add("tm-1")
            leader = service._seat.leader
            resources = leader.resources
            room, resources._inbox_limit = resources._inbox_limit, 0  # no room for any question
            with capture_logs() as logs:
                blocking = asyncio.create_task(service.gateway.block(node("tm-1"), merge=False))
                await asyncio.sleep(3.0)
            assert not blocking.done(), "what is answered is obeyed"
            assert len([entry for entry in logs if "overloaded, so the blocklist" in entry["event"]]) == 1
            resources._inbox_limit = room
            async with asyncio.timeout(60):
                await blocking
            assert service._seat.leader is leader
            assert (await service.gateway.task_managers())[0].blocked

    in_virtual_time(scenario)


@pytest.mark.req("BLK-9")
@pytest.mark.parametrize("action", [MARK, EVACUATE])
def test_a_blocked_task_manager_gets_no_slots_and_its_own_ones_are_replaced_at_once(action: BlockAction) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            first = await cluster.add("tm-1")
            master = await cluster.run_job(count=2)
            await cluster.holds(lambda: len(first.allocations) == 2)
            await service.gateway.block(node("tm-1"), merge=False)
            there = tuple(executor_in(allocation, first.info) for allocation in first.allocations.values())
            reply = await master.beat(3, executors=there)
            assert reply.blocklist is not None
            assert reply.blocklist.entries == (node("tm-1"),)
            await asyncio.sleep(2.0)
            assert len(first.allocations) == 2
            missing = (await master.beat(3, executors=there, blocklist_revision=reply.blocklist.revision)).missing
            assert missing.endswith("all 4 slots are on blocked nodes")

            second = await cluster.add("tm-2")
            await cluster.holds(lambda: len(second.allocations) == 1)
            known = reply.blocklist.revision
            again = await master.beat(3, executors=there, blocklist_revision=known)
            assert again.blocklist is None, "it knows the list"

            await service.gateway.block(node("tm-1", action), merge=True)
            # Its JobMaster wants others in place of those there, or has given them back; their task manager has not
            # heard it yet.
            going = tuple(msgspec.structs.replace(one, outgoing=True) for one in there) if action is MARK else ()
            await master.beat(3, executors=going, blocklist_revision=known)
            await cluster.holds(lambda: len(second.allocations) == 3)
            assert len(first.allocations) == 2

    in_virtual_time(scenario)


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize(
    ("known", "at_least"),
    [
        ({"shuffle_blocks": 3, "cached_blocks": 2}, False),
        ({"shuffle_blocks": 3, "cached_blocks": 2, "at_least": True}, True),
        ({"shuffle_blocks": 3}, True),
    ],
)
def test_counts_of_blocks_that_may_be_too_low_say_so(known: dict[str, Any], at_least: bool) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            there = await cluster.add()
            master = await cluster.run_job(count=1)
            await cluster.holds(lambda: there.allocations)
            await service.gateway.block(node("tm-1", EVACUATE), merge=False)
            (allocation,) = there.allocations.values()
            leaving = executor_in(allocation, there.info)
            leaving = msgspec.structs.replace(leaving, departure=Departure(begun=True, **known))
            await master.beat(1, executors=(leaving,))
            (view,) = await service.gateway.task_managers()
            assert view.evacuation is not None
            assert (view.evacuation.shuffle_blocks, view.evacuation.at_least) == (3, at_least)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-18")
def test_what_leaves_is_told_of_the_task_manager_that_it_leaves() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            here = [await cluster.add(f"tm-{number}", node_id=f"n{number % 2}") for number in range(4)]
            assert await service.gateway.task_managers_by_node() == {"n0": ["tm-0", "tm-2"], "n1": ["tm-1", "tm-3"]}
            master = await cluster.run_job(count=4)
            await cluster.holds(lambda: sum(len(one.allocations) for one in here) == 4)
            await service.gateway.block(node("n1", EVACUATE), merge=False)
            leaves = Departure(begun=True, shuffle_blocks=3, cached_blocks=2)
            executors = tuple(
                msgspec.structs.replace(executor_in(allocation, one.info), departure=leaves)
                for one in here[1::2]
                for allocation in one.allocations.values()
            )
            await master.beat(4, executors=executors)
            views = await service.gateway.task_managers()
            for view, one in zip(views, here, strict=True):
                leaving = len(one.allocations)
                if view.info.node_id == "n0":
                    assert view.evacuation is None
                    continue
                assert view.evacuation is not None
                assert (view.evacuation.executors, view.evacuation.executors_waiting) == (leaving, 0)
                assert (view.evacuation.shuffle_blocks, view.evacuation.cached_blocks) == (3 * leaving, 2 * leaving)
                assert (await service.gateway.task_manager(one.info.id)).evacuation == view.evacuation

    in_virtual_time(scenario)


@pytest.mark.req("BLK-4")
def test_a_block_times_out_durably() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            now = (await service.gateway.blocklist(), service.gateway.started_ms())[1]
            await service.gateway.block(node("tm-1", end_ms=now + 10_000), merge=False)
            store.before["record_blocklist"] = [RetryLater("busy")] * 3

            async def gone() -> bool:
                return not (await service.gateway.blocklist()).entries

            await eventually(gone)
        async with cluster.leading() as service:
            assert (await service.gateway.blocklist()).entries == ()

    in_virtual_time(scenario)


@pytest.mark.req("BLK-4")
def test_what_is_over_refuses_nothing_and_is_merged_into_nothing_until_it_is_removed() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        clock = VirtualClock(cluster.loop)
        async with cluster.leading() as service:
            for late in range(0, 500, 50):  # milliseconds; what has timed out is looked for twice a second
                for merge in (False, True):
                    end = clock.now_ms() + 1000 + late
                    await service.gateway.block(node("tm-1", EVACUATE, end_ms=end), merge=False)
                    await asyncio.sleep((end + 1 - clock.now_ms()) / 1000)  # the clock cuts off parts of a millisecond
                    made = await service.gateway.block(node("tm-1"), merge=merge)
                    assert (made.entry, made.merged) == (node("tm-1"), False)
                    await service.gateway.unblock(node("tm-1").place)
                    await service.gateway.block(node("tm-1", end_ms=clock.now_ms() + 1000 + late), merge=False)
                    await asyncio.sleep(1.0 + late / 1000)
                    with pytest.raises(Absent):
                        await service.gateway.unblock(node("tm-1").place)

    in_virtual_time(scenario)


REPORTS = {"blocklist.report-excluded-nodes": "true", "blocklist.detection.max-share": "0.5"}


def claim(name: str, action: BlockAction = MARK, cause: str = "") -> BlockedNode:
    """What the driver of the fakes' job reports about a node."""
    cause = cause or f"reported by job {graph().job_id[:8]}: its tasks fail here"
    return msgspec.structs.replace(node(name, action), causes=(cause,))


@pytest.mark.req("BLK-7")
def test_job_masters_reports_are_recorded_once_and_do_not_undo_a_removal() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), REPORTS)
        async with cluster.leading() as service:
            first = await cluster.add("tm-1")
            await cluster.add("tm-2")
            master = await cluster.run_job(count=4)
            await cluster.holds(lambda: bool(first.allocations))
            await asyncio.sleep(2.0)  # the task manager has reported its slots
            report = Report(entry=claim("tm-1"), known=0)
            await master.beat(4, block_reports=(report,))

            async def there() -> bool:
                return [entry.id for entry in (await service.gateway.blocklist()).entries] == ["tm-1"]

            await eventually(there)
            revision = (await service.gateway.blocklist()).revision
            for _ in range(3):
                await master.beat(4, block_reports=(report,))
            await asyncio.sleep(5.0)
            assert (await service.gateway.blocklist()).revision == revision
            await service.gateway.unblock(report.entry.place)
            await master.beat(4, block_reports=(report,))
            await asyncio.sleep(5.0)
            assert (await service.gateway.blocklist()).entries == ()
            again = Report(entry=report.entry, known=(await service.gateway.blocklist()).revision)
            await master.beat(4, block_reports=(again,))
            await eventually(there)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-7")
@pytest.mark.parametrize(
    ("settings", "entry"),
    [
        (REPORTS, claim("tm-1", EVACUATE)),
        (REPORTS, claim("tm-3")),  # the job has no slot there
        (REPORTS, claim("tm-1", cause="maintenance")),
        (REPORTS | {"blocklist.detection.max-share": "0.3"}, claim("tm-1")),
        ({"blocklist.detection.max-share": "1"}, claim("tm-1")),  # reports are off
    ],
)
def test_a_driver_cannot_block_more_than_a_report_may(settings: dict[str, str], entry: BlockedNode) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), settings)
        async with cluster.leading() as service:
            first = await cluster.add("tm-1")
            master = await cluster.run_job(count=2)
            await cluster.holds(lambda: len(first.allocations) == 2)
            await cluster.add("tm-2")
            await cluster.add("tm-3")
            await asyncio.sleep(2.0)
            await master.beat(2, block_reports=(Report(entry=entry, known=0),))
            await asyncio.sleep(2.0)
            assert (await service.gateway.blocklist()).entries == ()

    in_virtual_time(scenario)


def test_what_the_store_does_not_take_is_not_acknowledged_and_not_shown() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            store.before["record_blocklist"] = [RetryLater("busy")] * 5
            with pytest.raises(RetryLater):
                await service.gateway.block(node("tm-1"), merge=False)
            store.before["record_blocklist"] = [Fatal("no space")]
            with pytest.raises(Fatal):
                await service.gateway.block(node("tm-1"), merge=False)
            assert await service.gateway.blocklist() == Blocklist()
            # After an answer that got lost nobody knows: it is tried until it is certain.
            store.after["record_blocklist"] = [UnknownOutcome("who knows")] * 5
            with pytest.raises(UnknownOutcome):
                await service.gateway.block(node("tm-1"), merge=False)

            async def there() -> bool:
                return (await service.gateway.blocklist()).entries == (node("tm-1"),)

            await eventually(there)
            with pytest.raises(Conflict):
                await service.gateway.block(node("tm-1"), merge=False)

    in_virtual_time(scenario)


def test_changes_that_come_together_are_all_made() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            names = [f"tm-{number}" for number in range(20)]
            await asyncio.gather(*(service.gateway.block(node(name), merge=False) for name in names))
            made = await service.gateway.blocklist()
            assert ([entry.id for entry in made.entries], made.revision) == (names, 20)
            service.check_invariants()

    in_virtual_time(scenario)


def test_whoever_waits_when_the_job_manager_ends_is_answered() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            store.before["record_blocklist"] = [RetryLater("busy")] * 5
            waiting = [asyncio.create_task(service.gateway.block(node(name), merge=False)) for name in ("tm-1", "tm-2")]
            await asyncio.sleep(0.02)
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10.0)
        assert [type(answer) for answer in answers] == [UnknownOutcome, UnknownOutcome]

    in_virtual_time(scenario)


def test_without_a_confirmed_leadership_nothing_is_changed() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            service.pause()
            for change in (
                service.gateway.block(node("tm-1"), merge=False),
                service.gateway.unblock(node("tm-1").place),
            ):
                with pytest.raises(RetryLater):
                    await change
            service.resume()
            await service.gateway.block(node("tm-1"), merge=False)

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-15")
@pytest.mark.req("BLK-17")
def test_a_leader_that_cannot_read_the_list_places_nothing_until_a_job_has_told_it() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add("tm-1")
            master = await cluster.run_job()
            await service.gateway.block(node("tm-1"), merge=False)
            known = (await master.beat()).blocklist
            assert known is not None
        store.disk.damage_blocklist()
        async with cluster.leading() as service:
            await cluster.add("tm-1")
            free = await cluster.add("tm-2")
            await service.gateway.submit(graph(2))
            master = FakeJobMaster(service, graph().job_id, 1)
            assert (await master.register()).blocklist_lost
            for _ in range(30):
                await asyncio.sleep(1.0)
                assert (await master.beat()).blocklist_lost
            assert (await cluster.view(graph(2).job_id)).status is JobStatus.CREATED
            for asking in (service.gateway.blocklist(), service.gateway.block(node("tm-3"), merge=False)):
                with pytest.raises(RetryLater, match="cannot be read"):
                    await asking
            assert "memory, blocklist" in await service.gateway.blocklist_problem()

            forged = msgspec.structs.replace(known, revision=2**63 - 1, entries=())
            await master.beat(blocklist=forged, blocklist_epoch=2**60)
            more: dict[str, Any] = {"blocklist": known, "blocklist_epoch": 1, "blocklist_revision": known.revision}

            async def is_known() -> bool:
                return not (await master.beat(**more)).blocklist_lost

            await eventually(is_known)
            await cluster.holds(lambda: bool(free.started))
            assert await service.gateway.blocklist() == known
            assert await service.gateway.blocklist_problem() == ""
            reply = await master.beat(**more)
            assert (reply.blocklist, reply.blocklist_lost) == (None, False)
        async with cluster.leading() as service:
            assert await service.gateway.blocklist() == known

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-15")
def test_an_empty_list_takes_the_place_of_one_that_cannot_be_read_where_somebody_says_so() -> None:
    async def scenario() -> None:
        store = FailingStore()
        async with SmallCluster(store).leading() as service:
            await service.gateway.block(node("tm-1"), merge=False)
        store.disk.damage_blocklist()
        async with SmallCluster(store, {"blocklist.accept-loss": "true"}).leading() as service:
            assert await service.gateway.blocklist() == Blocklist()
        async with SmallCluster(store).leading() as service:
            assert await service.gateway.blocklist() == Blocklist()

    in_virtual_time(scenario)

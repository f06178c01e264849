"""How far an evacuation is, as the leader counts it from its begin."""

from __future__ import annotations

from emberkeep.blocklist.model import BlockAction, BlockedNode
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.memory_store import FailingStore


def test_what_has_to_move_is_counted_before_it_moves() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            await cluster.run_job(count=2)
            await cluster.holds(lambda: len(task_manager.allocations) == 2)
            await task_manager.beat()  # as a real one does at once
            entry = BlockedNode(
                id=task_manager.info.node_id,
                action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS,
                start_ms=0,
                end_ms=2**50,
                causes=("a fan is loud",),
            )
            await service.gateway.block(entry, merge=False)
            task_manager.allocations.clear()
            await task_manager.beat()

            evacuation = (await service.gateway.task_manager(task_manager.info.id)).evacuation

            assert evacuation is not None
            assert (evacuation.left, evacuation.total) == (1, 3), "the driver, of a driver and two executors"

    in_virtual_time(scenario)

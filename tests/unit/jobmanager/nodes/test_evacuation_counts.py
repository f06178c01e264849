"""How far an evacuation is, as the leader counts it from its begin."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.jobmanager.views.evacuation import with_evacuations
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.job_master_reports import Departure
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.memory_store import FailingStore
from tests.unit.rest.fake_gateway import job_id, job_view, status_report, task_manager_view


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


@pytest.mark.parametrize(("status", "leaving"), [(JobStatus.RUNNING, 1), (JobStatus.RESTARTING, 0)])
def test_executors_of_an_attempt_that_is_over_do_not_leave(status: JobStatus, leaving: int) -> None:
    report = status_report()
    executor = msgspec.structs.replace(report.executors[0], departure=Departure(begun=True))
    report = msgspec.structs.replace(report, executors=(executor,))
    view = next(each for each in map(task_manager_view, range(1, 9)) if each.info.id == executor.task_manager)

    (shown,) = with_evacuations(
        [msgspec.structs.replace(view, evacuated=True)],
        [job_view(job_id(1), "etl", status, status_report=report)],
    )

    assert shown.evacuation is not None
    assert shown.evacuation.executors == leaving

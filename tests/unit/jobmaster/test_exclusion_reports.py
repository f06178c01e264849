"""Which nodes a JobMaster reports, from which Spark excludes its executors."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.blocklist.follower import REPORTS_KEPT
from emberkeep.blocklist.model import BlockAction, Blocked, BlockedNode, Place, PlaceKind
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmaster.exclusion_reports import ExclusionReports
from emberkeep.slots.model import Allocation, TaskManagerInfo
from emberkeep.slots.pool.held_slot import ExecutorLiveness, ExecutorState, HeldExecutor, HeldSlot
from tests.property.slots.test_slot_pool import SMALL, task_manager
from tests.unit.jobmaster.test_service import Bench, Run, application, run

__all__ = ["run"]  # a fixture

JOB = JobId("1" * 32)


def on_node(number: int) -> TaskManagerInfo:
    return msgspec.structs.replace(task_manager(f"tm{number}#1"), node_id=f"node-{number}")


def slots(nodes: int, *, each: int = 1) -> list[HeldSlot]:
    """Executor n·each … on the n-th node."""
    return [
        HeldSlot(
            Allocation(
                id=AllocationId(str(number)), slot_index=0, job_id=JOB, attempt=1, profile=SMALL, job_master="jm:1"
            ),
            on_node(number // each),
            HeldExecutor(ExecutorId(str(number)), 0.0, ExecutorState.RUNNING, spark=ExecutorLiveness.ALIVE),
        )
        for number in range(nodes * each)
    ]


def review(
    reports: ExclusionReports, held: list[HeldSlot], *excluded: str, blocked: tuple[Blocked, ...] = ()
) -> list[str]:
    entries = reports.review(held, frozenset(map(ExecutorId, excluded)), BlockedPlaces(blocked), 1000)
    for entry in entries:
        assert entry.place.kind is PlaceKind.NODE
        assert (entry.action, entry.start_ms, entry.end_ms) == (BlockAction.MARK_BLOCKED, 1000, 61_000)
        assert "Spark excludes" in entry.cause
    return [entry.id for entry in entries]


def fresh(share: float = 0.2) -> ExclusionReports:
    return ExclusionReports(JOB, max_share=share, seconds=60.0)


def test_a_node_is_reported_once_all_executors_there_are_excluded_and_others_work() -> None:
    reports, held = fresh(), slots(5, each=2)
    assert review(reports, held, "2") == [], "another executor works there"
    assert review(reports, held, "2", "3") == [held[2].task_manager.node_id]
    assert review(reports, held, "2", "3") == [], "it is told once"
    assert review(reports, held) == [], "Spark tries it again"
    assert review(reports, held, "2", "3") == [held[2].task_manager.node_id], "and excludes it again"


def test_never_more_than_the_share_of_nodes_is_reported() -> None:
    assert review(fresh(), slots(4), "0") == [], "one of four nodes is more than a fifth"
    assert review(fresh(), slots(5), "0", "1") == [slots(5)[0].task_manager.node_id]
    held, reports = slots(5), fresh()
    (entry,) = reports.review(held, frozenset({ExecutorId("0")}), BlockedPlaces(), 1000)
    assert review(fresh(), held, "1", blocked=(entry,)) == [], "a fifth is blocked already"
    assert review(fresh(), held, "0", blocked=(entry,)) == [], "that node is blocked"


def test_a_job_that_fails_everywhere_reports_nothing() -> None:
    assert review(fresh(share=1.0), slots(3), "0", "1", "2") == []
    held = slots(3)
    for slot in held[1:]:
        slot.executor.spark = ExecutorLiveness.SILENT
    assert review(fresh(share=1.0), held, "0") == [], "it works nowhere"


def test_the_place_is_the_node_and_not_the_task_manager() -> None:
    held = slots(5)
    (entry,) = fresh().review(held, frozenset({ExecutorId("0")}), BlockedPlaces(), 1000)
    assert entry.place == Place(PlaceKind.NODE, held[0].task_manager.node_id)


def test_reports_that_no_job_manager_answers_do_not_end_the_job(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        for number in range(REPORTS_KEPT + 1):
            entry = BlockedNode(id=f"node-{number}", action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("bad",))
            bench.service.master.report_blocked(entry)
        bench.service.master.application_started(application(1))
        await bench.until(lambda: bench.wanted() == 1)
        assert len(bench.status().block_reports) == REPORTS_KEPT

    run(story)

"""Where state is placed while the number of executors changes: on executors that stay, near the copies of the state."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, JobId, TaskManagerId
from emberkeep.jobmaster.local_state_survey import held_slots
from emberkeep.local_state.model import Holding, StatePath
from emberkeep.local_state.placement import Awaited, Partition, Survey, awaited, held_partitions, place
from emberkeep.slots.pool.events import ExecutorExited, ExecutorRuns, SlotsOffered
from emberkeep.slots.pool.machine import SlotPool
from tests.property.slots.test_slot_pool import task_manager
from tests.unit.slots.pool.test_elastic import demand, elastic, saw, slot

pytestmark = pytest.mark.req("LOC-11")

CHECKPOINT = StatePath(root="/checkpoints/a", name="q")
# Each of three nodes has run one partition, and keeps its state.
HELD = {
    TaskManagerId(f"tm{number}"): (
        Holding(
            job_id=JobId("1" * 32), root=CHECKPOINT.root, name=f"q/state/0/{number}", files=2, size=9, newest_version=7
        ),
    )
    for number in range(3)
}


def survey(pool: SlotPool) -> Survey:
    slots = held_slots(pool.state)
    asked = {info.id: HELD[info.id] for info in slots.task_managers}
    return Survey(wanted=slots.wanted, executors=slots.executors, holdings=asked)


def placed(pool: SlotPool, settled: dict[int, str], *usable: int) -> dict[int, str]:
    """Executors named to Spark, by partition. ``usable``: those that are registered with Spark."""
    seen = survey(pool)
    names = {ExecutorId(str(number)) for number in usable}
    executors = [one for one in seen.executors if one.executor_id in names]
    known = {Partition(0, number): ExecutorId(name) for number, name in settled.items()}
    found = place(held_partitions(seen, CHECKPOINT), executors, known)
    return {partition.number: one.executor_id for partition, one in found.items()}


def test_nothing_is_placed_on_an_executor_that_autoscaling_dismisses() -> None:
    pool = elastic(3, registered=3)
    assert placed(pool, {}, 0, 1, 2) == {0: "0", 1: "1", 2: "2"}
    demand(pool, 2, decommissioned=(2,), now=1.0)
    assert [one.executor_id for one in survey(pool).executors] == ["0", "1"]
    assert placed(pool, {}, 0, 1, 2) == {0: "0", 1: "1"}


def test_a_dismissed_executor_does_not_stand_for_one_that_is_still_to_come() -> None:
    pool = elastic(2, registered=2)
    demand(pool, 1, decommissioned=(1,), now=1.0)
    demand(pool, 2, decommissioned=(1,), now=2.0)
    seen = survey(pool)
    registered = {ExecutorId("0"), ExecutorId("1")}
    assert awaited(seen, held_partitions(seen, CHECKPOINT).values(), registered) is Awaited.OTHERS


def test_state_in_memory_stays_where_it_is_when_the_number_rises_again() -> None:
    pool = elastic(3, registered=3)
    demand(pool, 2, decommissioned=(2,), now=1.0)
    pool.handle(ExecutorExited(AllocationId("al2"), ExecutorId("2"), 0, ""), 2.0)
    settled = {0: "0", 1: "1", 2: "0"}  # Spark has given the third partition to another executor
    assert placed(pool, settled, 0, 1) == {}
    demand(pool, 3, now=3.0)
    pool.handle(SlotsOffered(task_manager("tm2#1"), (slot(3),)), 3.1)
    pool.handle(ExecutorRuns(AllocationId("al3"), ExecutorId("3"), 13), 3.2)
    saw(pool, 0, 1, 3, now=4.0)
    assert placed(pool, settled, 0, 1, 3) == {}
    del settled[2]
    assert placed(pool, settled, 0, 1, 3) == {2: "3"}, "what is in nobody's memory goes to the node with its copy"

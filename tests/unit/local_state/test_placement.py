"""Where the tasks of a query should run, by what the nodes hold of its state."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import ExecutorId, JobId, TaskManagerId
from emberkeep.local_state.model import Holding, StatePath
from emberkeep.local_state.placement import (
    Awaited,
    ExecutorPlace,
    HeldPartition,
    Partition,
    Patience,
    Survey,
    awaited,
    held_partitions,
    place,
)

pytestmark = pytest.mark.req("LOC-11")

JOB = JobId("a" * 32)
CHECKPOINT = StatePath(root="/checkpoints/a", name="query-x")
A, B, C = TaskManagerId("tm-a"), TaskManagerId("tm-b"), TaskManagerId("tm-c")


def held(name: str, version: int, size: int = 10, root: str = CHECKPOINT.root) -> Holding:
    return Holding(job_id=JOB, root=root, name=name, files=1, size=size, newest_version=version)


def executor(number: int, node: TaskManagerId) -> ExecutorPlace:
    return ExecutorPlace(executor_id=ExecutorId(str(number)), host=f"host-of-{node}", task_manager=node)


def survey(*executors: ExecutorPlace, wanted: int | None = None, **holdings: tuple[Holding, ...]) -> Survey:
    return Survey(
        wanted=len(executors) if wanted is None else wanted,
        executors=executors,
        holdings=dict.fromkeys((each.task_manager for each in executors), ())
        | {TaskManagerId(f"tm-{node}"): each for node, each in holdings.items()},
    )


def on(*nodes: TaskManagerId) -> HeldPartition:
    return HeldPartition(stores=frozenset({"default"}), nodes=nodes)


def ids(placed: dict[Partition, ExecutorPlace]) -> dict[int, str]:
    return {partition.number: one.executor_id for partition, one in placed.items()}


def test_the_newest_version_decides_and_between_equals_the_larger_part() -> None:
    found = held_partitions(
        survey(
            a=(held("query-x/state/0/0", 7, 900), held("query-x/state/0/1", 9, 10), held("query-x/state/1/0", 1)),
            b=(held("query-x/state/0/0", 9, 10), held("query-x/state/0/1", 9, 900)),
        ),
        CHECKPOINT,
    )
    assert found == {Partition(0, 0): on(B, A), Partition(0, 1): on(B, A), Partition(1, 0): on(A)}


def test_nodes_with_the_newest_version_and_about_as_much_of_it_are_equally_good() -> None:
    found = held_partitions(
        survey(
            a=(held("query-x/state/0/0", 9, 900), held("query-x/state/0/1", 9, 900), held("query-x/state/0/2", 9, 7)),
            b=(held("query-x/state/0/0", 9, 450), held("query-x/state/0/1", 9, 449), held("query-x/state/0/2", 8, 7)),
        ),
        CHECKPOINT,
    )
    assert {partition.number: one.best for partition, one in found.items()} == {0: (A, B), 1: (A,), 2: (A,)}


def test_partitions_are_shared_out_among_equally_good_nodes() -> None:
    both = HeldPartition(stores=frozenset({"default"}), nodes=(A, B, C), equal=2)
    partitions = {Partition(0, number): both for number in range(4)}
    assert ids(place(partitions, (executor(1, A), executor(2, B), executor(3, C)), {})) == {
        0: "1",
        1: "2",
        2: "1",
        3: "2",
    }
    assert ids(place(partitions, (executor(3, C),), {})) == dict.fromkeys(range(4), "3")
    assert awaited(survey(executor(2, B), wanted=2), [both], frozenset({ExecutorId("2")})) is Awaited.OTHERS


def test_all_stores_of_a_partition_count_as_one() -> None:
    left, right = "query-x/state/0/3/left-keyToNumValues", "query-x/state/0/3/right-keyToNumValues"
    found = held_partitions(survey(a=(held(left, 5), held(right, 5)), b=(held(left, 6),)), CHECKPOINT)
    stores = frozenset({"left-keyToNumValues", "right-keyToNumValues"})
    assert found == {Partition(0, 3): HeldPartition(stores=stores, nodes=(B, A))}


@pytest.mark.parametrize(
    "other",
    [
        held("query-y/state/0/0", 1),
        held("query-x/state/0/0", 1, root="/elsewhere"),
        held("query-x/state/0/0/_metadata", 0),
        held("query-x/state/_metadata/0", 0),
        held("query-xx/state/0/0", 1),
    ],
)
def test_what_is_not_the_querys_state_is_left_out(other: Holding) -> None:
    assert held_partitions(survey(a=(other,)), CHECKPOINT) == {}


def test_a_checkpoint_may_be_a_root_itself() -> None:
    found = held_partitions(survey(a=(held("state/0/0", 1, root="/own"),)), StatePath(root="/own", name=""))
    assert found == {Partition(0, 0): on(A)}


def test_partitions_go_to_their_nodes_and_are_shared_out_there() -> None:
    partitions = {Partition(0, number): on(A) for number in range(4)} | {Partition(0, 4): on(B, A)}
    executors = (executor(1, A), executor(2, A), executor(3, B))
    assert ids(place(partitions, executors, {})) == {0: "1", 1: "2", 2: "1", 3: "2", 4: "3"}


def test_the_second_best_node_serves_where_the_best_has_no_executor() -> None:
    assert ids(place({Partition(0, 0): on(C, B)}, (executor(1, A), executor(3, B)), {})) == {0: "3"}


def test_a_partition_that_nobody_near_holds_is_left_to_spark() -> None:
    assert place({Partition(0, 0): on(C)}, (executor(1, A),), {}) == {}


def test_what_is_in_the_memory_of_a_living_executor_stays_there() -> None:
    settled = {Partition(0, 0): ExecutorId("1"), Partition(0, 1): ExecutorId("lost")}
    partitions = {Partition(0, 0): on(B), Partition(0, 1): on(B)}
    assert ids(place(partitions, (executor(1, A), executor(3, B)), settled)) == {1: "3"}


def test_spark_must_not_wait_for_a_node_that_is_gone() -> None:
    settled = {Partition(0, number): ExecutorId("lost") for number in range(2)} | {Partition(0, 2): ExecutorId("1")}
    partitions = {Partition(0, number): on(C) for number in range(3)}
    assert ids(place(partitions, (executor(1, A), executor(2, A)), settled)) == {0: "2", 1: "1"}
    assert place(partitions, (), settled) == {}


def test_executors_are_awaited_while_the_best_node_of_some_partition_has_none() -> None:
    one, two, three = executor(1, A), executor(2, B), executor(3, B)
    ready = frozenset({ExecutorId("1")})
    assert awaited(survey(one, two), [on(B)], ready) is Awaited.NEAR
    assert awaited(survey(one, two), [on(A)], ready) is Awaited.NONE
    assert awaited(survey(one), [on(B)], ready) is Awaited.NONE, "no further executor comes"
    assert awaited(survey(one, wanted=2), [on(A)], ready) is Awaited.OTHERS, "another node may still offer a slot"
    assert awaited(survey(one, wanted=2), [on(A)], frozenset()) is Awaited.NEAR
    assert awaited(survey(wanted=2), [], frozenset()) is Awaited.NEAR, "no node has been asked yet"
    assert awaited(survey(one, two), [on(B)], frozenset({ExecutorId("1"), ExecutorId("2")})) is Awaited.NONE
    assert awaited(survey(one, two, three), [on(B)], frozenset({ExecutorId("1"), ExecutorId("3")})) is Awaited.NONE


def test_an_executor_whose_node_was_not_asked_does_not_count() -> None:
    """Each survey takes an RPC, and executors register meanwhile."""
    one, two = executor(1, A), executor(2, B)
    both = frozenset({ExecutorId("1"), ExecutorId("2")})
    assert awaited(survey(one, wanted=2), [on(A)], both) is Awaited.OTHERS
    assert awaited(survey(wanted=2), [], both) is Awaited.NEAR
    assert awaited(survey(one, two), [on(A)], both) is Awaited.NONE


def test_a_node_that_did_not_answer_may_hold_the_newest_state() -> None:
    one, two = executor(1, A), executor(2, B)
    asked = Survey(wanted=2, executors=(one, two), holdings={A: ()})
    assert awaited(asked, [on(A)], frozenset({ExecutorId("1"), ExecutorId("2")})) is Awaited.NEAR


def test_a_start_does_not_wait_long_for_slots_that_may_not_come() -> None:
    patience = Patience(100.0, near=30.0, others=3.0)
    assert patience.lasts(Awaited.NEAR, 110.0)
    assert patience.lasts(Awaited.OTHERS, 111.0)
    assert patience.lasts(Awaited.NEAR, 113.0), "a further node was asked, and holds something newer"
    assert patience.lasts(Awaited.OTHERS, 115.0)
    assert patience.lasts(Awaited.OTHERS, 117.9)
    assert not patience.lasts(Awaited.OTHERS, 118.0)
    assert not patience.lasts(Awaited.NONE, 100.0)
    assert Patience(100.0, near=30.0, others=3.0).lasts(Awaited.NEAR, 129.9)
    assert not Patience(100.0, near=30.0, others=3.0).lasts(Awaited.NEAR, 130.0)

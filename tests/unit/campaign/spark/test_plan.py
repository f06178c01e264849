"""Plans of histories with real PySpark: the same seed gives the same, and all of them can be played."""

import itertools

import pytest

from campaign.spark.level import plan_of
from campaign.spark.plan import (
    BATCH_KINDS,
    FAULTS,
    KINDS,
    SINKS,
    STREAM_KINDS,
    ZOOKEEPER_KINDS,
    HistoryPlan,
    draw_plan,
)

PLANS = [plan_of(7, number) for number in range(200)]


def test_the_same_seed_gives_the_same_plan() -> None:
    assert draw_plan("7", 3) == draw_plan("7", 3) == PLANS[3]
    assert PLANS[3] != PLANS[4]


def test_a_plan_has_what_two_cores_can_carry() -> None:
    for plan in PLANS:
        warm = 4 if plan.standbys else 0
        # A driver and an executor for each script; a batch job beside them.
        assert plan.zookeepers + 2 * len(plan.streams) + warm + 2 <= 9
        assert len(plan.faults) == FAULTS
        assert [fault.number for fault in plan.faults] == list(range(FAULTS))
        for stream in plan.streams:
            assert len({query.sink for query in stream.queries}) == len(stream.queries) >= 2
            assert all(query.rocks for query in stream.queries if query.kind == "counted")


def test_faults_of_zookeeper_need_zookeeper() -> None:
    for plan in PLANS:
        if not plan.zookeepers:
            assert not {fault.kind for fault in plan.faults} & set(ZOOKEEPER_KINDS)
            assert plan.job_managers == 1


def pairs(plans: list[HistoryPlan]) -> set[tuple[str, str]]:
    return {(query.kind, query.sink) for plan in plans for stream in plan.streams for query in stream.queries}


@pytest.mark.parametrize("seed", [1, 2, 3, 7, 42])
def test_any_eight_successive_histories_meet_every_cluster_query_and_sink(seed: int) -> None:
    plans = [plan_of(seed, number) for number in range(40)]
    for first in range(len(plans) - 8):
        some = plans[first : first + 8]
        clusters = {(plan.zookeepers, plan.standbys, plan.local_state) for plan in some}
        assert clusters == set(itertools.product((0, 1), (False, True), (False, True)))
        assert pairs(some) == set(itertools.product(STREAM_KINDS, SINKS))
        assert {batch.kind for plan in some for batch in plan.batches} == set(BATCH_KINDS)


def test_seeds_differ_in_the_order_of_clusters_and_queries() -> None:
    orders = {
        tuple(
            (plan.zookeepers, plan.standbys, plan.local_state, tuple(sorted(pairs([plan]))))
            for plan in (plan_of(seed, number) for number in range(8))
        )
        for seed in range(10)
    }
    assert len(orders) == 10


def test_all_faults_come_up() -> None:
    assert {fault.kind for plan in PLANS for fault in plan.faults} == set(KINDS)
    assert any(stream.hot for plan in PLANS for stream in plan.streams)

"""Plans of histories with real PySpark: the same seed gives the same, and all of them can be played."""

from campaign.spark.level import plan_of
from campaign.spark.plan import BATCH_KINDS, FAULTS, KINDS, SINKS, STREAM_KINDS, ZOOKEEPER_KINDS, draw_plan

PLANS = [plan_of(7, number) for number in range(200)]


def test_the_same_seed_gives_the_same_plan() -> None:
    assert draw_plan("7-3") == draw_plan("7-3") == PLANS[3]
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


def test_all_kinds_come_up() -> None:
    assert {fault.kind for plan in PLANS for fault in plan.faults} == set(KINDS)
    queries = [query for plan in PLANS for stream in plan.streams for query in stream.queries]
    assert {(query.kind, query.sink) for query in queries} == {(kind, sink) for kind in STREAM_KINDS for sink in SINKS}
    assert {batch.kind for plan in PLANS for batch in plan.batches} == set(BATCH_KINDS)
    assert any(stream.hot for plan in PLANS for stream in plan.streams)

"""Leaders are lost every few seconds, and the seed alone decides when."""

from itertools import pairwise

from campaign.load.plan import PAUSES, draw_plan


def test_the_seed_decides_the_plan() -> None:
    assert draw_plan("7-0", 60.0) == draw_plan("7-0", 60.0)
    assert draw_plan("7-0", 60.0) != draw_plan("7-1", 60.0)


def test_leaders_are_lost_every_few_seconds_and_within_the_time() -> None:
    times = [fault.at for fault in draw_plan("7-0", 600.0).faults]
    assert times[0] > 0
    assert times[-1] < 600.0
    shortest, longest = PAUSES
    assert all(shortest - 0.01 <= after - before <= longest + 0.01 for before, after in pairwise(times))


def test_some_leaders_are_stopped_and_most_are_killed() -> None:
    kinds = [fault.kind for fault in draw_plan("7-0", 3600.0).faults]
    assert set(kinds) == {"kill leader", "freeze leader"}
    assert kinds.count("kill leader") > kinds.count("freeze leader")

"""Worlds of the swarm: their faults happen, and what they show is measured."""

from collections import Counter

import pytest

from campaign.playing import Played, play_world
from campaign.swarm import ELECTIONS, draw_world
from campaign.world import PlannedFault, PlannedJob, World
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.scripts import Script

INFRASTRUCTURE = (
    "flap link",
    "slow store",
    "slow disk",
    "failing disk",
    "drift clock",
    "drift timers",
    "rolling restart",
    *ELECTIONS,
)


def stream(*faults: PlannedFault, chaos: float = 40.0) -> World:
    return World(
        family="elections" if any(fault.kind in ELECTIONS for fault in faults) else "mixed",
        plan=ClusterPlan(seed="swarm", task_managers=2, files=False),
        jobs=(PlannedJob(at=0.1, script=Script(seconds=None, executors=2)),),
        faults=faults,
        chaos_seconds=chaos,
        shortest=8.0,
        longest=12.0,
    )


@pytest.mark.parametrize("kind", INFRASTRUCTURE)
def test_a_stream_outlives_a_fault_of_what_it_runs_on(kind: str) -> None:
    played = play_world(stream(PlannedFault(8.0, kind, 0)))
    assert not played.report.violations, played.report.failure()
    assert played.faults == Counter({kind: 1})
    assert ("a", "RUNNING", kind) in played.triples


def outage_of(played: Played) -> tuple[str, float]:
    (found,) = played.outages
    return found


def test_the_time_until_a_stream_works_again_is_measured() -> None:
    kind, seconds = outage_of(play_world(stream(PlannedFault(8.0, "kill driver", 0))))
    assert kind == "kill driver"
    assert 0.5 <= seconds <= 15.0


def test_a_fault_that_no_stream_notices_takes_no_time() -> None:
    assert outage_of(play_world(stream(PlannedFault(8.0, "kill jobmanager", 0)))) == ("kill jobmanager", 0.0)


def test_a_fault_that_comes_before_a_stream_works_again_makes_both_uncertain() -> None:
    faults = (PlannedFault(8.0, "kill driver", 0), PlannedFault(8.3, "kill agent", 1))
    assert play_world(stream(*faults)).outages == Counter({("kill driver", -1.0): 1, ("kill agent", -1.0): 1})


def test_a_triple_is_reached_when_a_rule_judges_a_job_that_was_hit() -> None:
    played = play_world(stream(PlannedFault(8.0, "kill driver", 0)))
    assert {("g", "RUNNING", "kill driver"), ("b", "RUNNING", "kill driver")} <= played.triples
    assert not any(kind != "kill driver" for _, _, kind in played.triples)


def test_the_same_world_gives_the_same_history() -> None:
    world = draw_world("swarm-5")
    assert play_world(world).report.digest == play_world(world).report.digest

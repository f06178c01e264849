"""Places of data that are away for a while, and job stores that are emptied or shared by mistake: nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from campaign.families.stored import PERIODIC
from campaign.playing import Played, play_world
from campaign.swarm import STORAGE
from campaign.world import PlannedFault, PlannedJob, World
from emberkeep.jobmanager.jobs.savepoints.periodic import JobSavepoints
from emberkeep.slots.table.fences import Fences
from tests.simulation.plants import Plant, check
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.scripts import Script

pytestmark = pytest.mark.req("SAFE-6")


def world(*faults: PlannedFault, chaos: float = 50.0, longest: float = 20.0, seed: object = "storage") -> World:
    return World(
        family="stored",
        plan=ClusterPlan(seed=f"{seed}", task_managers=2, owned_storage=True, options=PERIODIC),
        jobs=(
            PlannedJob(at=0.1, script=Script(seconds=None, executors=2)),
            PlannedJob(at=0.2, script=Script(seconds=chaos - 20.0)),
        ),
        faults=faults,
        chaos_seconds=chaos,
        shortest=longest * 0.8,
        longest=longest,
    )


@pytest.mark.parametrize("kind", STORAGE)
def test_jobs_outlive_a_fault_of_what_is_stored(kind: str) -> None:
    played = play_world(world(PlannedFault(8.0, kind, 0), PlannedFault(9.5, "kill driver", 1)))
    assert not played.report.violations, played.report.failure()
    assert played.faults == Counter({kind: 1, "kill driver": 1})


@pytest.mark.parametrize("killed", ["kill jobmanager", "kill agent", "kill executor"])
@pytest.mark.parametrize("kind", ["lose storage", "empty store"])
def test_they_outlive_it_although_more_is_lost_meanwhile(kind: str, killed: str) -> None:
    played = play_world(world(PlannedFault(8.0, kind, 0), PlannedFault(12.0, killed, 1)))
    assert not played.report.violations, played.report.failure()


def test_another_cluster_is_refused_by_storage_and_job_store() -> None:
    played = play_world(world(*(PlannedFault(8.0 + number, "share store", number) for number in range(6))))
    assert not played.report.violations, played.report.failure()
    counts = played.report.counts
    assert counts["another cluster refused by the storage"] > 0
    assert counts["another cluster refused by the job store"] > 0


def emptied(number: int) -> Played:
    return play_world(world(PlannedFault(8.0, "empty store", number), seed=number))


def retired(number: int) -> Played:
    """Savepoints are away while retention wants to delete the oldest ones."""
    at = 55.0 + number % 20
    return play_world(world(PlannedFault(at, "lose savepoints", number), chaos=110.0, longest=30.0, seed=number))


def any_store_will_do(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, epoch, _="": original(self, epoch)


def failures_count_as_done(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, job, savepoint, _: original(self, job, savepoint, "")


PLANTS = {
    "a task manager follows any job store": Plant(
        Fences, "admit_epoch", any_store_will_do, ("y",), lambda number: emptied(number).report.violations
    ),
    "a savepoint that cannot be deleted counts as deleted": Plant(
        JobSavepoints, "_deleted", failures_count_as_done, ("z",), lambda number: retired(number).report.violations
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)


@pytest.mark.parametrize("story", [emptied, retired])
def test_without_a_planted_bug_a_world_is_sound(story: Callable[[int], Played]) -> None:
    for number in range(1, 4):
        played = story(number)
        assert not played.report.violations, played.report.failure()
        assert {"y", "z"} <= {rule for rule, _, _ in played.triples}

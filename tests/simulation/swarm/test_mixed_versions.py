"""Clusters of release 0.1.0 are upgraded process by process: no job notices, and all messages can be read (SAFE-14)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from campaign.playing import Played, play_world
from campaign.world import PlannedFault, PlannedJob, World
from emberkeep.base.ids import InstanceId
from emberkeep.slots.table.record import TableRecord
from emberkeep.taskmanager.agent_record import AgentRecord
from tests.simulation.plants import Plant, check
from tests.support.seeded_ids import SeededIds
from tests.support.simulator import network
from tests.support.simulator.cluster import JM_NODE, ClusterPlan
from tests.support.simulator.releases.first_release import as_written
from tests.support.simulator.scripts import Script
from tests.support.simulator.virtual_loop import seeded_random

pytestmark = pytest.mark.req("SAFE-14")

UPGRADE = PlannedFault(8.0, "rolling upgrade", 0)
ALL = ("node-1", "node-2", JM_NODE)


def world(*faults: PlannedFault, seed: object = "upgrade", old: tuple[str, ...] = ALL) -> World:
    return World(
        family="upgraded",
        plan=ClusterPlan(seed=f"{seed}", task_managers=2, files=False, first_release=old, only_agents=True),
        jobs=(
            PlannedJob(at=0.1, script=Script(seconds=None, executors=2)),
            PlannedJob(at=5.0, script=Script(seconds=30.0)),
            PlannedJob(at=20.0, script=Script(seconds=5.0)),
        ),
        faults=faults,
        chaos_seconds=45.0,
        shortest=0.5,
        longest=5.0,
    )


def test_no_job_notices_an_upgrade() -> None:
    played = play_world(world(UPGRADE))
    assert not played.report.violations, played.report.failure()
    assert played.faults == Counter({"rolling upgrade": 1})
    assert ("j", "RUNNING", "rolling upgrade") in played.triples
    assert played.report.counts["driver adopted"] >= 2


@pytest.mark.parametrize("old", [("node-1",), ("node-2", JM_NODE), (JM_NODE,)], ids=["a node", "both", "the leader"])
def test_two_releases_work_side_by_side(old: tuple[str, ...]) -> None:
    played = play_world(world(PlannedFault(8.0, "kill agent", 0), PlannedFault(15.0, "kill jobmanager", 1), old=old))
    assert not played.report.violations, played.report.failure()


def test_a_driver_that_is_lost_during_an_upgrade_starts_again() -> None:
    planned = world(UPGRADE, PlannedFault(12.0, "kill driver", 1), PlannedFault(20.0, "crash node", 2))
    plan = replace(planned.plan, only_agents=False)
    played = play_world(msgspec.structs.replace(planned, plan=plan, family="mixed versions"))
    assert not played.report.violations, played.report.failure()


def test_a_record_of_the_first_release_has_none_of_the_later_fields() -> None:
    ids = SeededIds(seeded_random("record", "ids"))
    record = AgentRecord(
        instance=InstanceId(ids.hex32()),
        table=TableRecord(epoch=3, lineage="ours"),
        unconfirmed=(InstanceId(ids.hex32()),),
    )
    assert msgspec.json.decode(msgspec.json.encode(as_written(record))) == {
        "instance": record.instance,
        "table": {"epoch": 3},
    }


def everything_is_sent(number: int) -> Played:
    return play_world(world(UPGRADE, seed=number))


PLANTS = {
    "release 0.1.0 gets all fields": Plant(
        network,
        "for_first_release",
        lambda _: lambda message: message,
        ("j",),
        lambda number: everything_is_sent(number).report.violations,
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)

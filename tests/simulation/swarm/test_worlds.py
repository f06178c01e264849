"""Worlds of the swarm: every `make test` plays the same ones. With those of other tests, they are more than 2,000."""

from __future__ import annotations

import pytest

from campaign.playing import play_world
from campaign.progress import ROOT
from campaign.simulation import CHUNK, collected_at_the_end, keep
from campaign.swarm import FAMILIES, draw_world
from campaign.world import World

WORLDS = 1_600
FAILED = ROOT / ".campaign" / "usual"  # a person decides what becomes a regression test


def usual_world(number: int) -> World:
    return draw_world(f"usual-{number}")


@pytest.mark.parametrize("first", range(0, WORLDS, CHUNK))
def test_no_world_breaks_a_rule(first: int) -> None:
    with collected_at_the_end():
        for number in range(first, first + CHUNK):
            world = usual_world(number)
            violation = play_world(world).violation
            if violation:
                path = keep(world, violation, FAILED).relative_to(ROOT)
                pytest.fail(f"{violation}\nreplay: python -m campaign --replay {path} --verbose", pytrace=False)


def test_the_worlds_have_faults_of_each_kind() -> None:
    drawn = {fault.kind for number in range(WORLDS) for fault in usual_world(number).faults}
    assert drawn == {kind for family in FAMILIES.values() for kind in family.kinds}

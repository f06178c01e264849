"""Worlds of the swarm: every `make test` plays the same ones. With those of other tests, they are more than 2,000."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from campaign.playing import play_world
from campaign.progress import ROOT
from campaign.simulation import CHUNK, keep
from campaign.swarm import FAMILIES, draw_world
from campaign.world import World

WORLDS = 1_600
AT_ONCE = 50
FAILED = ROOT / ".campaign" / "usual"  # a person decides what becomes a regression test


def usual_world(number: int) -> World:
    return draw_world(f"usual-{number}")


@pytest.fixture(autouse=True)
def collected_now_and_then() -> Iterator[None]:
    """Let the garbage collector wait: what a world has made becomes garbage all at once."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE))
def test_no_world_breaks_a_rule(first: int) -> None:
    for number in range(first, first + AT_ONCE):
        world = usual_world(number)
        violation = play_world(world).violation
        if violation:
            path = keep(world, violation, FAILED).relative_to(ROOT)
            pytest.fail(f"{violation}\nreplay: python -m campaign --replay {path} --verbose", pytrace=False)
        if number % CHUNK == 0:
            gc.collect()


def test_the_worlds_have_faults_of_each_kind() -> None:
    drawn = {fault.kind for number in range(WORLDS) for fault in usual_world(number).faults}
    assert drawn == {kind for family in FAMILIES.values() for kind in family.kinds}

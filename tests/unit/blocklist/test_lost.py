"""The list when its record cannot be read."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.blocklist.lost import LostBlocklist, UnknownPlaces
from emberkeep.blocklist.model import Blocklist

pytestmark = pytest.mark.req("SAFE-15")


def test_the_newest_list_counts_once_all_had_time_to_speak() -> None:
    lost = LostBlocklist("torn", patience=10.0)
    assert lost.found(100.0) is None
    for epoch, revision, at in ((2, 1, 100.0), (1, 9, 101.0), (2, 4, 102.0), (2, 3, 103.0)):
        lost.hear(epoch, Blocklist(revision=revision), at)
    assert lost.found(109.9) is None
    assert lost.found(110.0) == Blocklist(revision=4)


def test_nothing_new_goes_anywhere_and_what_runs_stays() -> None:
    places, task_manager = UnknownPlaces(), TaskManagerId("tm-1")
    assert places.is_blocked(task_manager, "n1")
    assert not places.is_evacuated(task_manager, "n1")
    assert not places.restarts_drivers(task_manager, "n1")


def test_a_follower_tells_what_it_was_told() -> None:
    follower = BlocklistFollower()
    assert follower.told is None
    follower.take(3, Blocklist(revision=7))
    assert follower.told == (3, Blocklist(revision=7))

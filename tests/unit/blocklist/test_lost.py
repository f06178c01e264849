"""The list when its record cannot be read."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.blocklist.lost import LostBlocklist, UnknownPlaces, why_no_copy
from emberkeep.blocklist.model import BlockAction, BlockedNode, Blocklist, Place, PlaceKind, Removal

pytestmark = pytest.mark.req("SAFE-15")

NODE = BlockedNode(id="n1", action=BlockAction.MARK_BLOCKED, start_ms=1, causes=("disk",))
GONE = Removal(place=Place(PlaceKind.NODE, "n2"), revision=6)


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


def test_a_copy_is_what_an_earlier_leader_may_have_sent() -> None:
    assert why_no_copy(2, Blocklist(), 3) == ""
    assert why_no_copy(1, Blocklist(revision=7, entries=(NODE,), removals=(GONE,), floor=4), 3) == ""


@pytest.mark.parametrize(
    ("epoch", "blocklist", "reason"),
    [
        (0, Blocklist(), "epoch 0"),
        (3, Blocklist(revision=1), "epoch 3 cannot have sent it before epoch 3"),
        (2**60, Blocklist(revision=1), "before epoch 3"),
        (2, Blocklist(revision=2**63 - 1), "revisions"),
        (2, Blocklist(revision=-1), "revisions"),
        (2, Blocklist(revision=5, removals=(GONE,)), "revisions, up to 6"),
        (2, Blocklist(revision=5, floor=9), "revisions"),
        (2, Blocklist(revision=5, entries=(NODE, NODE)), "more entries"),
        (2, Blocklist(revision=5, entries=(msgspec.structs.replace(NODE, id=" "),)), "not a node id"),
        (2, Blocklist(revision=5, entries=(msgspec.structs.replace(NODE, causes=()),)), "cause"),
        (2, Blocklist(revision=5, entries=(msgspec.structs.replace(NODE, causes=("x" * 400,) * 4000),)), "more"),
    ],
)
def test_what_no_leader_can_have_sent_is_no_copy(epoch: int, blocklist: Blocklist, reason: str) -> None:
    assert reason in why_no_copy(epoch, blocklist, 3)

"""Which nodes are blocked because their platform has taken them out of service."""

from __future__ import annotations

import pytest

from emberkeep.blocklist.model import BlockAction, Blocked, BlockedNode, Blocklist, Place, PlaceKind, Removal
from emberkeep.jobmanager.nodes.outage_changes import OutageChanges, outage_changes
from emberkeep.slots.resource_driver import NodeOutage

pytestmark = pytest.mark.req("BLK-20")

OUT = (NodeOutage("n1", "Slurm: disk  is\nfailing", since_ms=5000), NodeOutage("n2", "", since_ms=5000))


def changes(
    *entries: Blocked, outages: tuple[NodeOutage, ...] = OUT, removals: tuple[Removal, ...] = ()
) -> OutageChanges:
    listed = Blocklist(entries=entries, removals=removals)
    return outage_changes(outages, {"n1"}, listed, action=BlockAction.MARK_BLOCKED, now_ms=9000)


def entry(*causes: str) -> BlockedNode:
    return BlockedNode(id="n1", action=BlockAction.MARK_BLOCKED, start_ms=9000, causes=causes)


def test_only_nodes_with_a_task_manager_are_blocked_and_with_the_platforms_reason() -> None:
    made = changes()
    assert made == OutageChanges(block=(entry("out of service: Slurm: disk is failing"),))
    assert changes(*made.block) == OutageChanges(), "it is blocked already"
    without = outage_changes((NodeOutage("n1", ""),), {"n1"}, Blocklist(), action=BlockAction.MARK_BLOCKED, now_ms=1)
    assert without.block[0].cause == "out of service: no reason given"


def test_a_node_that_is_back_is_unblocked_unless_somebody_else_has_blocked_it_too() -> None:
    place = Place(PlaceKind.NODE, "n1")
    assert changes(entry("out of service: x"), outages=()) == OutageChanges(unblock=(place,))
    assert changes(entry("out of service: x", "fan is loud"), outages=()) == OutageChanges()
    assert changes(entry("fan is loud"), outages=()) == OutageChanges()


@pytest.mark.parametrize(
    ("at_ms", "by_hand", "is_blocked"), [(4999, True, True), (5000, True, False), (6000, False, True)]
)
def test_an_operator_who_unblocks_it_during_the_outage_is_obeyed(at_ms: int, by_hand: bool, is_blocked: bool) -> None:
    removal = Removal(place=Place(PlaceKind.NODE, "n1"), revision=1, by_hand=by_hand, at_ms=at_ms)
    assert bool(changes(removals=(removal,)).block) is is_blocked

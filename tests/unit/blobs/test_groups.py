"""When a group is complete, and when its client counts as gone."""

from emberkeep.blobs.groups import Group
from emberkeep.blobs.model import permanent

A, B, FOREIGN = (permanent(letter * 64) for letter in "abc")


def test_a_group_is_complete_with_its_last_member() -> None:
    group = Group([A, B], [B])
    assert (group.missing, group.is_complete) == ({B}, False)
    group.arrived(FOREIGN)
    assert not group.is_complete
    group.arrived(B)
    assert (group.missing, group.is_complete) == (set(), True)


def test_a_client_is_gone_after_an_interval_without_an_upload() -> None:
    group = Group([A, B], [A, B])
    assert not group.turn(), "the announcement counts"
    assert group.turn()
    group.arrived(A)
    assert not group.turn()
    group.arrived(FOREIGN)
    assert group.turn(), "that was another group's"
    group.stir()
    assert not group.turn()
    assert group.turn()

"""The groups of a supervisor's processes, from the start of each process to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.port import Group, Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.cgroups.version2 import GroupV2, PlaceV2
from tests.support.kernel.few_descriptors import few_descriptors
from tests.support.kernel.group_tree import GroupTree

SHARE = Share(cores=2, memory_mb=100)


@pytest.fixture
def tree(tmp_path: Path) -> GroupTree:
    return GroupTree(tmp_path / "groups", 2)


@pytest.fixture
def groups(tree: GroupTree) -> ProcessGroups:
    return ProcessGroups(PlaceV2(tree.root / "place", tree, 4))


def kill(tree: GroupTree, marker: str) -> None:
    (tree.root / "place" / marker / "memory.events").write_text("oom 1\noom_kill 1\n")


def test_a_process_of_which_the_kernel_ended_one_is_named_with_its_limit(
    groups: ProcessGroups, tree: GroupTree
) -> None:
    groups.make("x@1", "x", SHARE)
    groups.make("y@1", "y", SHARE)
    assert groups.exceeding() == {}
    kill(tree, "x@1")
    assert groups.exceeding() == {"x": 100}
    assert groups.end("x@1") == 100
    assert groups.end("y@1") is None
    assert tree.below(tree.root / "place") == []
    assert groups.end("x@1") is None, "again"


def test_what_cannot_be_read_for_want_of_descriptors_is_named_later(groups: ProcessGroups, tree: GroupTree) -> None:
    groups.make("x@1", "x", SHARE)
    kill(tree, "x@1")
    with few_descriptors(0):
        assert groups.exceeding() == {}
    assert groups.exceeding() == {"x": 100}


def test_a_standby_process_has_the_least_share_until_a_job_takes_it(groups: ProcessGroups, tree: GroupTree) -> None:
    groups.make("standby@1", "standby", None)
    path = tree.root / "place" / "standby@1"
    assert ((path / "cpu.weight").read_text(), (path / "memory.max").read_text()) == ("1", "max")
    kill(tree, "standby@1")
    assert groups.exceeding() == {}, "nothing limits it, so a lack of memory of the machine ended it"
    assert groups.limited() == frozenset()
    groups.hand_over("standby@1", "driver", SHARE)
    assert ((path / "cpu.weight").read_text(), (path / "memory.max").read_text()) == ("200", str(100 * 1024**2))
    assert groups.limited() == {"driver"}


def test_a_group_whose_limit_is_refused_is_not_left(groups: ProcessGroups, tree: GroupTree) -> None:
    tree.refused.add("memory.max")
    with pytest.raises(PermissionError):
        groups.make("x@1", "x", SHARE)
    assert tree.below(tree.root / "place") == []


def test_a_group_in_which_the_kernel_still_counts_a_process_is_removed_later(
    groups: ProcessGroups, tree: GroupTree
) -> None:
    groups.make("x@1", "x", SHARE).join(7)
    groups.end("x@1")
    path = tree.root / "place" / "x@1"
    assert path.exists()
    (path / "cgroup.procs").write_text("")
    groups.end("another@1")
    assert not path.exists()


def test_groups_of_an_earlier_task_manager_are_found_even_if_no_new_ones_are_made(tree: GroupTree) -> None:
    earlier = ProcessGroups(PlaceV2(tree.root / "place", tree, 4))
    earlier.make("x@1", "x", SHARE)

    def find(marker: str, pid: int) -> Group | None:
        return GroupV2(tree.root / "place" / marker, tree) if pid == 7 else None

    groups = ProcessGroups(None, find)
    assert not groups.are_made
    groups.find("x@1", "x", 7)
    groups.find("y@1", "y", 8)
    assert groups.limited() == {"x"}
    kill(tree, "x@1")
    assert groups.exceeding() == {"x": 100}
    assert groups.end("x@1") == 100
    assert not (tree.root / "place" / "x@1").exists()

"""A control group gets its share, its processes, and is removed, with either version of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.port import LEAST, Place, Share
from emberkeep.adapters.cgroups.version1 import PlaceV1
from emberkeep.adapters.cgroups.version2 import LEAF, PlaceV2, enable_below
from tests.support.kernel.group_tree import GroupTree

LIMITED, UNLIMITED = Share(cores=2, memory_mb=896), Share(cores=3, memory_mb=None)
BYTES = str(896 * 1024**2)


def place_in(tree: GroupTree) -> Place:
    if tree.version == 1:
        return PlaceV1(tree.root / "memory" / "place", tree.root / "cpu" / "place", tree, cores=4)
    return PlaceV2(tree.root / "place", tree, cores=4)


def directory(tree: GroupTree, controller: str, name: str) -> Path:
    return (tree.root / controller if tree.version == 1 else tree.root) / "place" / name


@pytest.fixture(params=[1, 2])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> GroupTree:
    return GroupTree(tmp_path / "groups", request.param)


def test_a_group_of_version_1_has_shares_by_cores_and_one_limit_with_swap(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path, 1)
    group = place_in(tree).make("x")
    group.limit(LIMITED)
    memory, cpu = directory(tree, "memory", "x"), directory(tree, "cpu", "x")
    assert (cpu / "cpu.shares").read_text() == "2048"
    assert (memory / "memory.limit_in_bytes").read_text() == BYTES
    assert (memory / "memory.memsw.limit_in_bytes").read_text() == BYTES
    assert (tmp_path / "cpu" / "place" / "cpu.shares").read_text() == "4096", "of all of them together"


def test_a_group_of_version_2_has_a_weight_by_cores_and_ends_as_a_whole(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path, 2)
    group = place_in(tree).make("x")
    group.limit(LIMITED)
    path = directory(tree, "", "x")
    files = ("cpu.weight", "memory.max", "memory.swap.max", "memory.oom.group")
    assert [(path / name).read_text() for name in files] == ["200", BYTES, "0", "1"]
    assert (tmp_path / "place" / "cpu.weight").read_text() == "400"
    group.limit(UNLIMITED)
    assert [(path / name).read_text() for name in files] == ["300", "max", "max", "0"]


def test_weights_keep_to_what_the_kernel_takes(tree: GroupTree) -> None:
    name, least, most = ("cpu.shares", "2", "262144") if tree.version == 1 else ("cpu.weight", "1", "10000")
    group = place_in(tree).make("x")
    group.limit(LEAST)
    assert (directory(tree, "cpu", "x") / name).read_text() == least
    group.limit(Share(cores=1000, memory_mb=None))
    assert (directory(tree, "cpu", "x") / name).read_text() == most


@pytest.mark.parametrize(
    ("version", "without"), [(1, "memory.memsw.limit_in_bytes"), (2, "memory.swap.max"), (2, "memory.oom.group")]
)
def test_a_kernel_without_a_file_that_is_not_needed_still_limits(tmp_path: Path, version: int, without: str) -> None:
    group = place_in(GroupTree(tmp_path, version, without=(without,))).make("x")
    group.limit(LIMITED)
    assert group.memory_limit_mb() == 896


def test_a_limit_is_read_back(tree: GroupTree) -> None:
    group = place_in(tree).make("x")
    assert group.memory_limit_mb() is None
    group.limit(LIMITED)
    assert group.memory_limit_mb() == 896
    group.remove()
    assert group.memory_limit_mb() is None, "what cannot be read"


def kill(tree: GroupTree, name: str, *, at_limit: bool = True) -> None:
    """Let the kernel end three processes: ``at_limit`` of the group, or for want of memory elsewhere."""
    file = "memory.oom_control" if tree.version == 1 else "memory.events"
    (directory(tree, "memory", name) / file).write_text(f"oom {7 * at_limit}\noom_kill 3\noom_group_kill 1\n")
    if tree.version == 1:
        most = 895 if at_limit else 800
        (directory(tree, "memory", name) / "memory.max_usage_in_bytes").write_text(str(most * 1024**2))


def test_what_a_lack_of_memory_elsewhere_has_ended_is_not_counted(tree: GroupTree) -> None:
    group = place_in(tree).make("x")
    group.limit(LIMITED)
    kill(tree, "x", at_limit=False)
    assert group.memory_kills() == 0


def test_processes_that_the_kernel_ended_are_counted(tree: GroupTree) -> None:
    group = place_in(tree).make("x")
    group.limit(LIMITED)
    assert group.memory_kills() == 0
    kill(tree, "x")
    assert group.memory_kills() == 3
    group.remove()
    assert group.memory_kills() == 0, "what cannot be read"


def test_a_group_is_removed_once_it_is_empty(tree: GroupTree) -> None:
    place = place_in(tree)
    group = place.make("x")
    group.join(7)
    assert not group.remove()
    place.close()
    assert place.unused() == {}
    place.make("y").join(7)
    assert group.remove()
    assert group.remove(), "again"


def test_groups_that_processes_have_made_below_are_removed_with_theirs(tree: GroupTree) -> None:
    group = place_in(tree).make("x")
    inner = directory(tree, "cpu", "x") / "inner"
    tree.make(inner)
    tree.write(inner / "cgroup.procs", "7")
    assert not group.remove()
    tree.write(inner / "cgroup.procs", "8")
    (inner / "cgroup.procs").write_text("")
    assert group.remove()
    assert not inner.exists()


def test_what_an_earlier_process_has_left_is_found_by_the_next(tree: GroupTree) -> None:
    earlier = place_in(tree)
    earlier.make("used").join(7)
    earlier.make("unused")
    earlier.close()
    next_one = place_in(tree)
    assert list(next_one.unused()) == ["unused"]
    next_one.unused()["unused"].remove()
    assert not directory(tree, "cpu", "unused").exists()
    assert directory(tree, "cpu", "used").exists()


def test_a_place_without_groups_is_removed(tree: GroupTree) -> None:
    place_in(tree).close()
    assert not directory(tree, "cpu", "x").parent.exists()


def test_a_group_that_cannot_be_made_in_both_hierarchies_is_made_in_none(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path, 1)
    place = place_in(tree)
    (tmp_path / "cpu" / "place" / "x").write_text("a file")
    (tmp_path / "cpu" / "place" / "x").chmod(0)

    def refuse(path: Path) -> None:
        if path.parts[-3] == "cpu":
            raise OSError(28, "no space left on device")
        GroupTree.make(tree, path)

    tree.make = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        place.make("x")
    assert not (tmp_path / "memory" / "place" / "x").exists()


class TestOwnGroupOfVersion2:
    """Where the groups of a task manager are, below the group that it was started in."""

    @pytest.fixture
    def tree(self, tmp_path: Path) -> GroupTree:
        tree = GroupTree(tmp_path, 2)
        tree.make(tmp_path / "own")
        return tree

    def test_processes_move_into_a_leaf_before_their_group_gets_children_with_limits(self, tree: GroupTree) -> None:
        own = tree.root / "own"
        for pid in (7, 8):
            tree.write(own / "cgroup.procs", str(pid))
        assert enable_below(own, tree) == own
        assert tree.processes(own) == []
        assert tree.processes(own / LEAF) == [7, 8]
        assert (own / "cgroup.subtree_control").read_text() == "cpu memory"

    def test_the_next_process_finds_itself_in_the_leaf(self, tree: GroupTree) -> None:
        own = tree.root / "own"
        tree.write(own / "cgroup.procs", "7")
        enable_below(own, tree)
        tree.make(own / "place")
        assert enable_below(own / LEAF, tree) == own
        assert tree.below(own) == [own / LEAF, own / "place"]

    def test_a_group_without_processes_needs_no_leaf(self, tree: GroupTree) -> None:
        assert enable_below(tree.root / "own", tree) == tree.root / "own"
        assert tree.below(tree.root / "own") == []

    def test_a_group_that_may_not_be_changed_is_an_error(self, tree: GroupTree) -> None:
        tree.refused.add("cgroup.subtree_control")
        with pytest.raises(PermissionError):
            enable_below(tree.root / "own", tree)

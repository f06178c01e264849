"""Whether a task manager makes control groups, by its setting and by what its own group permits."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.mounts import OwnGroups
from emberkeep.adapters.cgroups.opening import OpenedGroups, open_groups
from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.cgroups.version2 import LEAF
from emberkeep.base.errors import Fatal
from tests.support.kernel.group_tree import GroupTree

SHARE = Share(cores=1, memory_mb=100)


class Node:
    """A node with control groups of this version; the task manager was started in the group ``own``."""

    def __init__(self, root: Path, version: int) -> None:
        self.work = root / "work"
        self.tree = GroupTree(root / "groups", version)
        if version == 1:
            self.own = OwnGroups({name: self.tree.root / name / "own" for name in ("memory", "cpu")}, None)
            for path in self.own.v1.values():
                self.tree.make(path)
        else:
            self.tree.make(self.tree.root / "own")
            self.own = OwnGroups({}, self.tree.root / "own")
            self.tree.write(self.tree.root / "own" / "cgroup.procs", "7")

    def opened(self, setting: str) -> OpenedGroups:
        return open_groups(setting, self.work, 4, self.tree, lambda: self.own)

    @property
    def places(self) -> list[str]:
        top = self.tree.root / "own" if self.own.v2 is not None else self.own.v1["memory"]
        return [each.name for each in self.tree.below(top) if each.name != LEAF]


@pytest.fixture(params=[1, 2])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, request.param)


@pytest.mark.parametrize("setting", ["auto", "required"])
def test_groups_are_made_where_that_is_possible(node: Node, setting: str) -> None:
    opened = node.opened(setting)
    assert (opened.version, opened.why_none) == (node.tree.version, "")
    opened.groups.make("x@1", "x", SHARE)
    assert opened.groups.limited() == {"x"}
    assert opened.groups.end("x@1") is None
    opened.groups.close()
    assert node.places == []


def test_by_default_none_are_made(node: Node) -> None:
    opened = node.opened("off")
    assert not opened.groups.are_made
    assert opened.why_none == "taskmanager.cgroups is off"
    assert node.places == []


@pytest.mark.parametrize("refused", ["cgroup.procs", "limit", "weight"])
def test_what_is_required_and_impossible_is_an_error_that_names_the_remedy(node: Node, refused: str) -> None:
    files = {"limit": ("memory.limit_in_bytes", "memory.max"), "weight": ("cpu.shares", "cpu.weight")}
    name = files[refused][node.tree.version - 1] if refused in files else refused
    node.tree.refused.add(name)
    with pytest.raises(Fatal, match=r"taskmanager\.cgroups is required, but no control groups can be made") as failure:
        node.opened("required")
    assert "Delegate=yes" in (failure.value.hint or "")
    assert name in failure.value.message
    assert node.places == []
    opened = node.opened("auto")
    assert not opened.groups.are_made
    assert name in opened.why_none


def test_without_the_controllers_there_are_none(tmp_path: Path) -> None:
    node = Node(tmp_path, 2)
    (tmp_path / "groups" / "own" / "cgroup.controllers").write_text("pids memory")
    assert node.opened("auto").why_none == f"the controllers memory and cpu are not available in {node.own.v2}"
    node.own = OwnGroups({"cpu": Path("/c")}, None)
    assert node.opened("auto").why_none == "the controllers memory and cpu are not available"


class TestSystemd:
    """Groups that systemd manages are changed on explicit request only."""

    @pytest.fixture
    def delegated(self, monkeypatch: pytest.MonkeyPatch) -> set[Path]:
        """Return the groups that systemd has delegated, to be filled."""
        delegated: set[Path] = set()

        def attribute(path: Path, name: str) -> bytes:
            if path in delegated and name == "user.delegate":
                return b"1"
            raise OSError(61, "no data available")

        monkeypatch.setattr("os.getxattr", attribute)
        return delegated

    @pytest.mark.parametrize("name", ["own", "a.service", "session-3.scope"])
    def test_with_version_2_no_unit_is_changed_by_itself(self, tmp_path: Path, delegated: set[Path], name: str) -> None:
        """A restart of such a service fails while processes go on in its groups: see systemd's issue 24064."""
        node = Node(tmp_path, 2)
        own = node.tree.root / name
        node.tree.make(own)
        node.tree.write(own / "cgroup.procs", "7")
        node.own = OwnGroups({}, own)
        delegated |= {own} if name == "own" else set()
        opened = node.opened("auto")
        assert opened.why_none.startswith(f"systemd manages {own}")
        assert node.tree.processes(own) == [7], "nothing was moved"
        assert node.opened("required").version == 2
        assert node.tree.processes(own / LEAF) == [7]
        node.own = OwnGroups({}, own / LEAF)
        assert not node.opened("auto").groups.are_made

    def test_with_version_1_a_unit_has_to_be_delegated(self, tmp_path: Path, delegated: set[Path]) -> None:
        node = Node(tmp_path, 1)
        unit = {name: node.tree.root / name / "a.service" for name in ("memory", "cpu")}
        for path in unit.values():
            node.tree.make(path)
        node.own = OwnGroups({**unit, "name=systemd": tmp_path / "a.service"}, None)
        assert node.opened("auto").why_none.endswith("has not delegated it")
        assert node.opened("required").version == 1
        delegated.add(tmp_path / "a.service")
        assert node.opened("auto").version == 1


def test_a_restarted_task_manager_uses_the_same_place_and_removes_what_is_unused(node: Node) -> None:
    first = node.opened("required")
    first.groups.make("x@1", "x", SHARE)
    first.groups.make("y@1", "y", SHARE).join(9)
    first.groups.close()
    places = node.places
    assert len(places) == 1
    second = node.opened("required")
    assert node.places == places
    second.groups.close()
    assert node.places == places, "y goes on"
    memory = node.own.v1["memory"] if node.own.v2 is None else node.own.v2
    assert [each.name for each in node.tree.below(memory / places[0])] == ["y@1"]


def test_a_group_that_cannot_be_looked_at_does_not_keep_the_task_manager_from_starting(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = node.opened("auto")
    first.groups.make("y@1", "y", SHARE).join(9)
    first.groups.close()
    read = node.tree.read

    def failing(path: Path) -> str:
        if path.parent.name == "y@1":
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(node.tree, "read", failing)
    assert node.opened("auto").why_none == ""

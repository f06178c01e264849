"""The directories of a process's control groups come from two files of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.mounts import OwnGroups, parse

V1_MOUNTS = """\
22 1 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNT = "30 23 0:26 {root} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_controllers_of_version_1_have_a_directory_each() -> None:
    cgroup = "9:name=systemd:/s\n4:memory:/jobs/a b\n2:cpu,cpuacct:/\n0::/u\n"
    found = parse(cgroup, V1_MOUNTS)
    assert {name: found.v1[name] for name in ("memory", "cpu", "cpuacct")} == {
        "memory": Path("/sys/fs/cgroup/memory/jobs/a b"),
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct"),
    }
    assert found.v2 == Path("/sys/fs/cgroup/unified/u")


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/system.slice/a.service", "/groups/system.slice/a.service"),
        ("/", "/", "/groups"),
        ("/docker/1", "/docker/1/x", "/groups/x"),  # a mount that shows a part of the hierarchy
        ("/docker/1", "/docker/12", None),
        ("/", "/../other", None),  # outside of the namespace
    ],
)
def test_the_group_of_version_2_is_below_its_mount(root: str, path: str, expected: str | None) -> None:
    found = parse(f"0::{path}\n", V2_MOUNT.format(root=root, point="/groups"))
    assert found == OwnGroups({}, None if expected is None else Path(expected))


def test_a_mount_point_may_have_spaces() -> None:
    assert parse("0::/\n", V2_MOUNT.format(root="/", point=r"/my\040groups")).v2 == Path("/my groups")


def test_without_mounts_there_are_none() -> None:
    assert parse("4:memory:/\n0::/\n", "") == OwnGroups({}, None)


def test_a_group_is_found_by_name_from_those_that_its_processes_have_made_below() -> None:
    own = OwnGroups({"memory": Path("/m/p/x@1/inner"), "cpu": Path("/c/p/x@1"), "pids": Path("/p")}, Path("/u/x@1/a/b"))
    assert own.of("x@1") == OwnGroups({"memory": Path("/m/p/x@1"), "cpu": Path("/c/p/x@1")}, Path("/u/x@1"))
    assert own.of("y@1") == OwnGroups({}, None)

"""The configuration that a ZooKeeper server gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emberkeep.spark.jvm.zookeeper_server import Peer, ServerPlan, prepare_server


def members(plan: ServerPlan) -> list[str]:
    prepare_server(plan, os.environ)
    lines = (plan.directory / "zoo.cfg").read_text().splitlines()
    return [line for line in lines if line.startswith("server.")]


def test_a_server_alone_has_no_members(tmp_path: Path) -> None:
    assert members(ServerPlan(tmp_path, "127.0.0.1", 2181)) == []


@pytest.mark.parametrize(
    ("host", "member"),
    [
        pytest.param("", "127.0.0.1", id="at the address that all of them bind"),
        pytest.param("node-2", "node-2", id="on another host"),
        pytest.param("fd00::2", "[fd00::2]", id="at an IPv6 address"),
    ],
)
def test_members_are_where_they_are_reached(tmp_path: Path, host: str, member: str) -> None:
    plan = ServerPlan(tmp_path, "127.0.0.1", 2181, 1, (Peer(2, 2888, 3888, host),))
    assert members(plan) == [f"server.2={member}:2888:3888"]
    assert (tmp_path / "data" / "myid").read_text() == "1\n"

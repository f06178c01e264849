"""A transfer is seen by the bytes that a process has on their way to a task manager that writes a file."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from campaign.processes.cluster import Member
from campaign.processes.transfers.hits import NETWORK, PEER, RECEIVER, SERVER, Transfer, hit_at, hit_between
from campaign.processes.transfers.running import RunningTransfers

ADDRESS = "127.9.8.7"  # of the receiver, and of nobody else here


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """The end of a connection at which much has arrived, and more is on its way."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((ADDRESS, 0)))
        sender = stack.enter_context(socket.create_connection(listening.getsockname()))
        receiver = stack.enter_context(listening.accept()[0])
        sender.setblocking(False)
        try:
            while True:
                sender.send(bytes(1 << 20))
        except BlockingIOError:
            yield receiver


def a_cluster(tmp_path: Path, *, runs: bool = True) -> Any:
    """Return a cluster whose JobManager is this process. Its task managers have empty caches."""
    this: Any = SimpleNamespace(process=SimpleNamespace(pid=os.getpid()))
    incoming = {name: tmp_path / name for name in ("tm-1", "tm-2")}
    for directory in incoming.values():
        directory.mkdir(parents=True)
    return SimpleNamespace(
        job_managers=[Member("jm-1", "jobmanager", daemon=this)],
        task_managers=[Member(name, "taskmanager", daemon=this) for name in incoming],
        is_running=lambda member: runs and member.name == "jm-1",
        incoming=lambda member: incoming[member.name],
    )


def test_a_file_on_its_way(tmp_path: Path, receiver: socket.socket) -> None:
    cluster = a_cluster(tmp_path)
    running = RunningTransfers(cluster, {"tm-1": ADDRESS, "tm-2": "127.9.8.6", "jm-1": "127.9.8.5"})
    file = tmp_path / "tm-1" / "0"
    assert running.now() == [], "nobody writes a file"
    file.touch()
    assert running.now() == [], "nothing of it has arrived"
    file.write_bytes(b"the beginning")
    assert running.now() == [Transfer("jm-1", "tm-1")]
    assert RunningTransfers(cluster, {}).now() == [], "without hosts, no sender is known"
    assert RunningTransfers(a_cluster(tmp_path / "ended", runs=False), {"tm-1": ADDRESS}).now() == []
    file.rename(tmp_path / "tm-2" / "0")
    assert running.now() == [], "another task manager writes a file"


def test_what_was_sent_is_no_transfer(tmp_path: Path, receiver: socket.socket) -> None:
    running = RunningTransfers(a_cluster(tmp_path), {"tm-1": ADDRESS})
    (tmp_path / "tm-1" / "0").write_bytes(b"the beginning")
    assert running.now()
    receiver.setblocking(False)
    while running.now():
        with suppress(BlockingIOError):
            receiver.recv(1 << 20)


TRANSFERS = (Transfer("jm-2", "tm-1"), Transfer("tm-3", "tm-2"))


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["tm-1"], (RECEIVER,)),
        (["jm-2"], (SERVER,)),
        (["tm-3"], (PEER,)),
        (["tm-2", "tm-3"], (RECEIVER, PEER)),
        (["jm-1", "zk-1"], ()),
    ],
)
def test_where_a_fault_of_members_hits(names: list[str], places: tuple[str, ...]) -> None:
    assert hit_at(names, TRANSFERS) == places


@pytest.mark.parametrize(
    ("pairs", "places"),
    [
        ([("jm-2", "tm-1")], (NETWORK,)),
        ([("tm-2", "tm-3")], (NETWORK,)),
        ([("tm-1", "tm-2"), ("jm-2", "tm-2")], ()),
    ],
)
def test_where_a_fault_of_the_network_hits(pairs: list[tuple[str, str]], places: tuple[str, ...]) -> None:
    assert hit_between(pairs, TRANSFERS) == places

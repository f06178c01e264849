"""How many requests to the durable store a state store's commit and its load take, and how many wait for each other.

The calls are those of Hadoop's client, as a state store of Spark 4.3 makes them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.local_state.errors import Exists, Fenced
from emberkeep.local_state.model import Caller, FileKind
from emberkeep.taskmanager.state_gateway import early_answers
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, EXECUTOR, UUID, Node

STORE = "q/state/0/3"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


class Requests:
    """The requests to a node's durable store within a context: ``waited`` one after the other, ``beside`` those."""

    def __init__(self) -> None:
        self.waited: list[str] = []
        self.beside: list[str] = []

    @property
    def numbers(self) -> tuple[int, int]:
        return len(self.waited), len(self.beside)


@contextlib.contextmanager
def requests(node: Node) -> Iterator[Requests]:
    found, own = Requests(), threading.current_thread()

    def note(method: str) -> None:
        (found.waited if threading.current_thread() is own else found.beside).append(method)

    node.durable.before = note
    try:
        yield found
    finally:
        node.durable.before = lambda _: None


def put(node: Node, name: str, caller: Caller = EXECUTOR) -> None:
    """A file that RocksDB has made: it is written under its own name."""
    with contextlib.suppress(Absent):
        node.gateway.status(caller, node.path(name))
    node.write(name, b"sorted strings", caller)


def write_atomically(node: Node, name: str, caller: Caller = EXECUTOR, task: str = ".TID7") -> None:
    """``CheckpointFileManager.createAtomic``: a temporary file, which is renamed."""
    directory, _, leaf = name.rpartition("/")
    temporary = f"{directory}/.{leaf}.{UUID}{task}.tmp"
    gateway = node.gateway
    for checked in (directory, temporary):
        with contextlib.suppress(Absent):
            gateway.status(caller, node.path(checked))
    node.write(temporary, name.encode(), caller)
    assert gateway.status_before_rename(caller, node.path(temporary)).kind is FileKind.FILE
    with contextlib.suppress(Absent):
        gateway.status_before_rename(caller, node.path(name))
        gateway.delete(caller, node.path(name), recursive=False)
    assert gateway.status(caller, node.path(directory)).kind is FileKind.DIRECTORY
    node.rename(temporary, name, caller)


def load(node: Node, version: int) -> bytes:
    """What a task does to read a version of its state store, up to the files that RocksDB shares among versions."""
    gateway, directory, file = node.gateway, node.path(STORE), node.path(f"{STORE}/{version}.zip")
    assert gateway.status(EXECUTOR, directory).kind is FileKind.DIRECTORY
    assert file.name in [entry.name for entry in gateway.listing(EXECUTOR, directory)]
    seen = gateway.look_for(EXECUTOR, file)
    return b"".join(gateway.open_file(EXECUTOR, file, 0, None, seen=seen).pieces)


def test_a_commit_waits_for_seven_requests_and_one_with_a_changelog_for_five(node: Node) -> None:
    put(node, f"{STORE}/SSTs/000001-{UUID}.sst")
    write_atomically(node, f"{STORE}/1.zip")
    load(node, 1)
    with requests(node) as snapshot:
        put(node, f"{STORE}/SSTs/000002-{UUID}.sst")
        write_atomically(node, f"{STORE}/2.zip")
    assert snapshot.waited == ["status", "create", "status", "create", "listing", "rename", "listing"]
    assert sorted(snapshot.beside) == ["listing", "listing", "status"]
    with requests(node) as changelog:
        write_atomically(node, f"{STORE}/3.changelog")
    assert changelog.numbers == (5, 2)
    assert (node.place / EXECUTOR.job_id / STORE / "3.changelog").read_bytes() == f"{STORE}/3.changelog".encode()


def test_an_entry_of_a_drivers_log_waits_for_seven_requests(node: Node) -> None:
    """Its temporary file is checked before it is stored: an attempt that is over makes no directory again."""
    driver = DRIVER_OF[1]
    write_atomically(node, "q/offsets/1", driver, task="")
    with requests(node) as found:
        with pytest.raises(Absent):  # Spark never replaces an entry
            node.gateway.status(driver, node.path("q/offsets/2"))
        write_atomically(node, "q/offsets/2", driver, task="")
    assert found.waited == ["status", "status", "listing", "create", "listing", "rename", "listing"]
    assert found.beside == ["status"]


def test_a_load_from_copies_waits_for_one_request(node: Node) -> None:
    put(node, f"{STORE}/SSTs/000001-{UUID}.sst")
    write_atomically(node, f"{STORE}/1.zip")
    node.restarted_gateway().admit(EXECUTOR)
    with requests(node) as found:
        assert load(node, 1) == f"{STORE}/1.zip".encode()
    assert (found.waited, found.beside) == (["status"], ["listing"])
    with requests(node) as again:  # of the same process: only what may have changed is requested
        load(node, 1)
    assert (again.waited, again.beside) == (["listing"], [])


def test_early_answers_go_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_answers, "_FRESH_LISTING_SECONDS", 0.0)
    node = Node(tmp_path)
    write_atomically(node, f"{STORE}/1.zip")
    load(node, 1)
    node.gateway.listing(EXECUTOR, node.path(STORE))
    Node(tmp_path, "other").write(f"{STORE}/1.zip", b"another")
    path = node.path(f"{STORE}/1.zip")
    seen = node.gateway.look_for(EXECUTOR, path)
    assert b"".join(node.gateway.open_file(EXECUTOR, path, 0, None, seen=seen).pieces) == b"another"


def test_a_listing_has_what_was_written_after_it_was_obtained_early(node: Node) -> None:
    with pytest.raises(Absent):
        node.gateway.status(EXECUTOR, node.path(STORE))
    node.write(f"{STORE}/1.delta", b"one")
    assert [entry.name for entry in node.gateway.listing(EXECUTOR, node.path(STORE))] == [f"{STORE}/1.delta"]


def test_a_target_that_appeared_after_its_status_was_requested_is_not_replaced(node: Node, tmp_path: Path) -> None:
    temporary = f"{STORE}/.1.zip.{UUID}.TID7.tmp"
    node.write(temporary, b"ours")
    Node(tmp_path, "other").write(f"{STORE}/1.zip", b"theirs")
    with pytest.raises(Absent):  # the answer from before
        node.gateway.status_before_rename(EXECUTOR, node.path(f"{STORE}/1.zip"))
    with pytest.raises(Exists):
        node.rename(temporary, f"{STORE}/1.zip")
    assert node.gateway.status_before_rename(EXECUTOR, node.path(f"{STORE}/1.zip")).length == len(b"theirs")


def test_an_early_answer_is_for_the_process_that_caused_it_and_void_after_a_change(node: Node) -> None:
    write_atomically(node, f"{STORE}/1.zip")
    temporary, target = f"{STORE}/.2.zip.{UUID}.TID7.tmp", node.path(f"{STORE}/2.zip")
    node.write(temporary, b"two")
    node.write(target.name, b"of the driver", DRIVER_OF[1])
    for caller in (EXECUTOR, DRIVER_OF[1]):
        assert node.gateway.status_before_rename(caller, target).length == len(b"of the driver")
    node.gateway.delete(EXECUTOR, node.path("q"), recursive=True)
    for name in (STORE, "q", temporary):
        with pytest.raises(Absent):
            node.gateway.status(EXECUTOR, node.path(name))


def test_a_store_that_did_not_answer_early_is_asked_again(node: Node) -> None:
    write_atomically(node, f"{STORE}/1.zip")
    temporary, target = f"{STORE}/.1.zip.{UUID}.TID7.tmp", node.path(f"{STORE}/1.zip")
    node.durable.fail("status", RetryLater("away"))
    node.write(temporary, b"again")
    assert node.gateway.status_before_rename(EXECUTOR, target).length == len(f"{STORE}/1.zip")


@pytest.mark.req("HA-7")
def test_files_that_nothing_refers_to_are_checked_while_they_are_stored(node: Node, tmp_path: Path) -> None:
    put(node, f"{STORE}/SSTs/000001-{UUID}.sst")
    met = threading.Barrier(2)

    def meet(method: str) -> None:
        if method in ("create", "listing"):
            met.wait(60)

    node.durable.before = meet
    node.write(f"{STORE}/SSTs/000002-{UUID}.sst", b"x")  # only ends if both are under way at the same time
    node.durable.before = lambda _: None

    Node(tmp_path, "other").gateway.admit(DRIVER_OF[2])
    for name in (f"{STORE}/SSTs/000003-{UUID}.sst", f"{STORE}/.4.zip.{UUID}.TID7.tmp"):
        node.restarted_gateway()  # which knows the newer attempt from the store only
        node.gateway.fences.forget(EXECUTOR.job_id)
        job = node.gateway.fences._job(EXECUTOR.job_id)
        job.admitted.add(EXECUTOR.attempt)  # the newer attempt began after its first request
        with pytest.raises(Fenced):
            node.write(name, b"late")
        assert not (node.place / EXECUTOR.job_id / name).exists()


def test_stores_that_hang_leave_others_what_they_had_before(node: Node) -> None:
    """With every side thread waiting for a store, requests do everything themselves, one after the other."""
    write_atomically(node, f"{STORE}/1.zip")
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        waiting.release()
        go_on.wait(60)

    calls = node.gateway._side_calls
    hanging = [calls.begin(hang) for _ in range(32)]
    for _ in hanging:
        assert waiting.acquire(timeout=60)
    try:
        with requests(node) as found:
            write_atomically(node, f"{STORE}/2.zip")
        assert found.numbers == (7, 0)
    finally:
        go_on.set()
    for call in hanging:
        call.result()

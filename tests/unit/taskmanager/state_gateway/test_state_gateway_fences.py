"""Old attempts change nothing, on whatever node they are (P3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.local_state.errors import Fenced
from emberkeep.taskmanager.state_gateway import fences as state_gateway_fences
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, EXECUTOR, JOB, UUID, Node

OLD, NEW = DRIVER_OF[1], DRIVER_OF[2]


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    return Node(tmp_path, "here"), Node(tmp_path, "there")


CHANGES: list[Callable[[Node], object]] = [
    lambda node: node.write("offsets/1", b"late", OLD),
    lambda node: node.write("offsets/1", b"late", OLD, overwrite=False),
    lambda node: node.rename(f"offsets/.1.{UUID}.tmp", "offsets/1", OLD),
    lambda node: node.rename(f"offsets/.1.{UUID}.tmp", "offsets/0", OLD, overwrite=True),
    lambda node: node.gateway.delete(OLD, node.path("offsets"), recursive=True),
    lambda node: node.gateway.make_directory(OLD, node.path("commits")),
]


@pytest.mark.req("HA-7")
@pytest.mark.parametrize("change", CHANGES)
def test_once_a_new_attempt_was_answered_an_old_one_changes_nothing(
    nodes: tuple[Node, Node], change: Callable[[Node], object]
) -> None:
    here, there = nodes
    here.write("offsets/0", b"acknowledged", OLD)
    here.write(f"offsets/.1.{UUID}.tmp", b"late", OLD)
    seen = there.gateway.listing(NEW, there.path("offsets"))
    with pytest.raises(Fenced):
        change(here)
    assert there.gateway.listing(NEW, there.path("offsets")) == seen
    assert here.counts("fenced") == (1,)
    here.restarted_gateway()  # it knows of nothing then but what the store says
    with pytest.raises(Fenced):
        change(here)
    with pytest.raises(Fenced):
        here.read("offsets/0", OLD)


@pytest.mark.req("HA-7")
@pytest.mark.parametrize("method", ["create", "rename"])
def test_a_change_that_was_under_way_is_not_acknowledged(nodes: tuple[Node, Node], method: str) -> None:
    here, there = nodes
    here.write(f"offsets/.1.{UUID}.tmp", b"late", OLD)

    def overtaken(called: str) -> None:
        if called == method:
            there.gateway.listing(NEW, there.path(""))

    here.durable.before = overtaken
    change = CHANGES[0] if method == "create" else CHANGES[2]
    with pytest.raises(Fenced):
        change(here)


@pytest.mark.req("HA-7")
def test_the_task_manager_tells_of_a_newer_attempt(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    here.write("offsets/0", b"x", OLD)
    here.gateway.fences.see(JOB, 2)
    with pytest.raises(Fenced):
        here.read("offsets/0", OLD)
    assert here.read("offsets/0", NEW) == b"x"


def test_who_is_admitted_needs_no_thread_to_be_admitted_again(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    assert here.gateway.is_admitted(OLD)
    assert not here.gateway.is_admitted(NEW)  # the durable store was not asked yet
    here.gateway.admit(NEW)
    assert here.gateway.is_admitted(NEW)
    here.gateway.fences.see(JOB, 2)
    assert not here.gateway.is_admitted(OLD)  # ``admit`` tells why
    with pytest.raises(Fenced):
        here.gateway.admit(OLD)
    here.gateway.forget(JOB)
    assert not here.gateway.is_admitted(NEW)


@pytest.mark.req("HA-7")
def test_of_two_attempts_that_begin_at_once_only_the_newer_goes_on(tmp_path: Path) -> None:
    barrier = threading.Barrier(2)

    def begin(attempt: int) -> bool:
        node = Node(tmp_path, str(attempt))
        barrier.wait(60)
        try:
            node.write(f"offsets/{attempt}", b"x", DRIVER_OF[attempt])
        except Fenced:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        older, newer = pool.map(begin, (1, 2))
    assert newer
    assert older == (tmp_path / JOB / "offsets/1").exists() or not older
    with pytest.raises(Fenced):
        Node(tmp_path, "third").write("offsets/3", b"x", OLD)


def test_no_answer_about_attempts_is_no_leave(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    here.write("offsets/0", b"x", OLD)
    here.durable.fail("listing", RetryLater("away"))
    with pytest.raises(RetryLater):
        here.write("offsets/1", b"x", OLD)
    here.write("offsets/1", b"x", OLD)


def test_a_job_whose_state_was_removed_does_not_make_it_again(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    here.write("offsets/0", b"x", OLD)
    here.durable.delete("", recursive=True)
    with pytest.raises(Fenced, match="no mark"):
        here.write("offsets/1", b"x", OLD)
    assert not (here.place / JOB).exists()


def test_an_executor_that_sees_another_storage_than_its_driver_is_refused(tmp_path: Path) -> None:
    here = Node(tmp_path)
    assert here.write("state/0/1/1.delta", b"x", EXECUTOR).length == 1
    elsewhere = Node(tmp_path, "elsewhere")
    elsewhere.place = tmp_path / "not-shared"
    for attempt in (
        lambda: elsewhere.restarted_gateway().admit(EXECUTOR),
        lambda: elsewhere.write("state/0/1/2.delta", b"x", EXECUTOR),
    ):
        with pytest.raises(Fenced, match="storageDir"):
            attempt()
    assert not elsewhere.place.exists()


def test_old_marks_are_cleared(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    for attempt in range(1, 5):
        here.write(f"offsets/{attempt}", b"x", DRIVER_OF[attempt])
    assert [entry.name for entry in here.durable.listing(".attempts")] == [".attempts/4", ".attempts/4.roots"]


def test_a_question_does_not_wait_for_an_earlier_one(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    here.write("offsets/0", b"x", OLD)
    entered, go_on = threading.Event(), threading.Event()

    def hold(method: str) -> None:
        if method == "listing" and not entered.is_set():
            entered.set()
            go_on.wait(60)

    here.durable.before = hold
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(here.gateway.fences.check, OLD)
        assert entered.wait(60)
        here.gateway.fences.check(OLD)
        assert not first.done()
        go_on.set()
        first.result(60)


def test_those_who_wait_share_a_question(nodes: tuple[Node, Node]) -> None:
    here, _ = nodes
    here.write("offsets/0", b"x", OLD)
    here.durable.calls.clear()
    held, go_on = threading.Semaphore(0), threading.Event()

    def hold(method: str) -> None:
        if method == "listing":
            held.release()
            go_on.wait(60)

    here.durable.before = hold
    with ThreadPoolExecutor(16) as pool:
        checks = [pool.submit(here.gateway.fences.check, OLD) for _ in range(state_gateway_fences._LANES)]
        for _ in checks:
            assert held.acquire(timeout=60)
        checks += [pool.submit(here.gateway.fences.check, OLD) for _ in range(12)]
        assert not held.acquire(timeout=0.2)  # they wait for one of those that are under way
        go_on.set()
        for check in checks:
            check.result(60)
    assert state_gateway_fences._LANES < here.durable.calls.count("listing .attempts") <= 16

"""Processes at idle priority, and at normal priority again."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.processes import priority
from emberkeep.base.processes.priority import (
    can_be_raised,
    lower,
    raise_to_normal,
)

NICE = 1 << 23
THREADS = """
import sys, threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
with open(f"/proc/self/task/{threading.enumerate()[1].native_id}/comm", "w") as name:
    name.write("C2 CompilerThread0")
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pid() -> Iterator[int]:
    """A process with four threads, in a session of its own."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "up\n"
        yield process.pid
        process.stdin.close()


def policies(pid: int) -> list[int]:
    return [os.sched_getscheduler(int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()]


@pytest.mark.skipif(not can_be_raised(), reason="this user may not raise priorities")
def test_all_threads_are_lowered_and_raised_again(pid: int) -> None:
    raise_to_normal([pid])  # the tests may run at idle priority
    assert policies(pid) == [os.SCHED_OTHER] * 4
    lower(pid)
    assert policies(pid) == [os.SCHED_IDLE] * 4
    lower(pid)
    assert policies(pid) == [os.SCHED_IDLE] * 4
    raise_to_normal([pid])
    assert policies(pid) == [os.SCHED_OTHER] * 4


@pytest.mark.skipif(not can_be_raised(), reason="this user may not raise priorities")
def test_compilers_are_raised_later_than_the_other_threads(pid: int) -> None:
    lower(pid)
    raise_to_normal([pid], compilers=False)
    assert sorted(policies(pid)) == sorted([os.SCHED_OTHER] * 3 + [os.SCHED_IDLE])
    raise_to_normal([pid])
    assert policies(pid) == [os.SCHED_OTHER] * 4


def test_this_process_keeps_its_priority(pid: int) -> None:
    before = policies(os.getpid())
    lower(pid)
    assert policies(os.getpid()) == before


def test_a_process_that_has_ended_is_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    lower(process.pid)
    raise_to_normal([process.pid])


def test_threads_that_this_process_may_not_change_keep_their_priority(
    pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emberkeep runs at idle priority itself, without the privilege to leave it, or a sandbox forbids the change."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = policies(pid)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_BATCH)
    raise_to_normal([pid])
    lower(pid)
    monkeypatch.undo()
    assert policies(pid) == before


def test_threads_that_start_in_the_meantime_are_raised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look finds a thread that an idle one has started, until there is none."""
    rounds = [4, 2, 1, 0]
    monkeypatch.setattr(priority, "_change", lambda *_: rounds.pop(0))
    raise_to_normal([0])
    assert rounds == []


@pytest.mark.parametrize(
    ("limit", "status", "expected"),
    [
        (20, "", True),
        (40, "", True),
        (19, "CapEff:\t0000000000000000", False),
        (0, f"CapEff:\t{NICE:016x}", True),
        (0, f"Name:\tx\nCapPrm:\t{NICE:016x}\nCapEff:\t{~NICE & 0xFFFFFFFF:016x}\nCapBnd:\t{NICE:016x}", False),
        (0, "Name:\tx", False),
        (0, None, False),
    ],
)
def test_who_may_raise_priorities(
    limit: int, status: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "status"
    if status is not None:
        file.write_text(status)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, 40))
    monkeypatch.setattr(priority, "Path", lambda _: file)
    assert can_be_raised() is expected


def test_the_limit_of_no_limit_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert can_be_raised()

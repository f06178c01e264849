"""Standby processes become processes of jobs, and fail at each step. Real processes, which are small."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.processes import supervisor as supervisor_module
from emberkeep.adapters.processes.supervisor import Exit
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.priority import can_be_raised, lower
from emberkeep.base.processes.process_identity import identify
from emberkeep.daemons.taskmanager import standby_starts, standbys
from emberkeep.daemons.taskmanager.standby_takes import TakeOver
from tests.integration.taskmanager.standby_bench import (
    DEADLINE,
    Bench,
    carried_by_any_process,
    running,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    async with running(bench) as pool:
        yield bench
        assert not pool.done(), "the pool has failed"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is given up because this machine is busy."""
    monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", DEADLINE)


# --- taken ------------------------------------------------------------------------------------------------------------


async def test_a_job_gets_the_process_with_an_empty_log_and_reports_its_end_once(bench: Bench) -> None:
    await bench.begin()
    (pid,) = bench.pids()
    bench.standbys.job_starts()
    assert await bench.take() == pid
    assert bench.supervisor.running() == {"driver-a-1"}
    output = bench.root / "driver-a-1.stdout"
    await until(output.read_text)
    assert output.read_text() == f"began in {bench.root} with spec.record a\n"
    assert [path.name for path in bench.directory.iterdir()] != []
    await bench.supervisor.stop("driver-a-1", 0.0)
    assert bench.exits == [Exit("driver-a-1", -signal.SIGKILL)]
    bench.standbys.takes.ended("driver-a-1")
    await until(lambda: not any(bench.directory.iterdir()))


@pytest.mark.skipif(not can_be_raised(), reason="this user may not raise priorities")
async def test_a_process_gets_the_normal_priority_entirely_a_while_after_the_take(bench: Bench) -> None:
    await bench.begin()
    (pid,) = bench.pids()
    bench.standbys.job_starts()
    assert await bench.take() == pid
    lower(pid)
    await bench.standbys.takes.raise_compilers()
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE, "it has just begun"
    await bench.standbys.takes.raise_compilers(at_once=True)
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER


async def test_of_two_attempts_at_once_one_gets_the_process(bench: Bench) -> None:
    await bench.begin()
    (pid,) = bench.pids()
    bench.standbys.job_starts()
    first, second = await asyncio.gather(bench.take(), bench.take(bench.wanted("driver-b-1")))
    assert first == pid
    assert second == "no standby driver was ready"


async def test_the_next_process_is_warmed_once_no_job_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.begin()
    bench.standbys.job_starts()
    await bench.take()
    assert bench.pool.standbys() == ()
    monkeypatch.setattr(standbys, "STARTING_SECONDS", 0.0)
    await until(bench.is_ready)
    assert len(bench.made) == 2


async def test_an_end_just_after_the_process_was_taken_is_reported_once(bench: Bench) -> None:
    await bench.begin("ends at once")
    assert isinstance(await bench.take(), int)
    await until(lambda: bench.exits)
    assert bench.exits == [Exit("driver-a-1", 3)]


# --- failing while it is taken ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "has ended while it was taken"),
        ("runs out of memory", "has ended while it was taken"),
        ("speaks nonsense", "cannot be read"),
        ("hangs", "does not answer: timed out"),
        ("has a child", "does not answer: timed out"),
    ],
)
async def test_a_process_that_fails_is_killed_before_a_cold_one_starts(
    bench: Bench, how: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "timed out" in reason:
        monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", 0.5)
    await bench.begin(how)
    assert reason in await bench.failed_take()
    assert not carried_by_any_process(bench.root), "a child is left"


async def test_a_process_that_was_killed_just_before(bench: Bench) -> None:
    await bench.begin()
    (pid,) = bench.pids()
    os.kill(pid, signal.SIGKILL)  # and the supervisor does not know it yet
    await bench.failed_take()


async def test_output_of_an_earlier_process_is_kept(bench: Bench) -> None:
    await bench.begin()
    (bench.root / "driver-a-1.stderr").write_text("earlier")
    assert "exists already" in await bench.failed_take()
    assert (bench.root / "driver-a-1.stderr").read_text() == "earlier"


async def test_a_disk_that_is_full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.begin()

    def full(*_: object) -> None:
        raise Fatal("no space left on device")

    monkeypatch.setattr(supervisor_module, "write_process_record", full)
    assert "no space left on device" in await bench.failed_take()


async def test_a_record_that_cannot_be_written(bench: Bench) -> None:
    await bench.begin()

    def full() -> None:
        raise OSError(28, "no space left on device")

    wanted = bench.wanted()
    assert "no space left on device" in await bench.failed_take(TakeOver(wanted.request, None, wanted.on_exit, full))


async def test_a_process_with_the_jobs_name_is_left_as_it_is(bench: Bench) -> None:
    request = bench.wanted(argv=[sys.executable, "-c", "import time; time.sleep(3600)"]).request
    pid = await bench.supervisor.start(request, bench.exits.append)
    for path in (request.stdout, request.stderr):
        path.unlink()
    await bench.begin()
    bench.standbys.job_starts()
    assert "runs already" in str(await bench.take())
    assert bench.pids() == {pid}
    assert identify(pid) is not None
    assert bench.exits == []


async def test_a_take_that_is_cancelled_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbys, "STARTING_SECONDS", 0.0)
    bench.standbys.begin()
    for turns in range(8):
        await until(bench.is_ready)
        name = f"driver-{turns}-1"
        task = asyncio.create_task(bench.take(bench.wanted(name)))
        for _ in range(turns * 2):
            await asyncio.sleep(0.0005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if not task.cancelled():
            assert isinstance(task.result(), int)
            await bench.supervisor.stop(name, 0.0)
            bench.exits.clear()
        assert name not in bench.supervisor.running()
    assert bench.exits == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"user": object()}, "it runs as another user"),
        ({"environ": {"JOB": os.fsdecode(b"\xff")}}, "it needs environment variables that are not UTF-8"),
        ({"environ": {os.fsdecode(b"\xff"): "1"}}, "it needs environment variables that are not UTF-8"),
        ({"environ": {"JOB": "a\0b"}}, "it needs environment variables that cannot be set later"),
        ({"environ": {"JOB=A": "1"}}, "it needs environment variables that cannot be set later"),
        ({"environ": {"": "1"}}, "it needs environment variables that cannot be set later"),
    ],
)
async def test_what_no_standby_can_do_costs_none(bench: Bench, changes: dict[str, Any], reason: str) -> None:
    await bench.begin()
    assert await bench.take(bench.wanted(**changes)) == reason
    assert bench.is_ready()


async def test_a_process_that_does_not_fit_stays(bench: Bench) -> None:
    await bench.begin("does not fit")
    assert await bench.take() == "it is as if it did not fit"
    assert bench.is_ready()

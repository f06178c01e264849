"""Standby processes are warmed, and end. Real processes, which are small."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.daemons.taskmanager import standbys
from emberkeep.slots.standbys import machine
from emberkeep.slots.standbys.events import Look
from emberkeep.slots.standbys.members import StandbyState
from tests.integration.taskmanager.standby_bench import (
    DEADLINE,
    FREE,
    PROFILE,
    Bench,
    running,
    until,
)
from tests.integration.taskmanager.standby_programs import SmallStandby

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    async with running(bench) as pool:
        yield bench
        assert not pool.done(), "the pool has failed"


# --- warming up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fails to warm", "has no memory to warm", "never warm", "of another release"])
async def test_a_process_that_does_not_become_ready_is_ended_and_the_next_one_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "never warm":
        monkeypatch.setattr(standbys, "WARMING_SECONDS", 0.5)
    bench.how = how
    bench.standbys.begin()
    await until(lambda: bench.made and not bench.pool.standbys())
    assert bench.supervisor.running() == set()
    await until(lambda: not any(bench.directory.iterdir()))
    assert await bench.take() == "the last such standby driver has failed; see the task manager's log"
    bench.standbys._handle(FREE)
    assert bench.pool.standbys() == (), "the pool pauses"


async def test_a_ready_process_that_dies_leaves_the_pool(bench: Bench) -> None:
    await bench.begin()
    (pid,) = bench.pids()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not bench.pool.standbys())
    assert await bench.take() == "the last such standby driver has failed; see the task manager's log"


@pytest.mark.parametrize("how", ["runs", "never warm"])
async def test_memory_that_slots_need_is_given_back(bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(machine, "PRESSURE_SECONDS", 0.0)
    bench.how = how
    bench.standbys.begin()
    await until(bench.is_ready if how == "runs" else bench.supervisor.running)
    bench.free_mb = 1000
    await until(lambda: not bench.pool.standbys())
    assert bench.supervisor.running() == set()
    assert bench.pool.why_none(PROFILE) == "no standby driver was ready", "it was no failure"


async def test_a_process_that_is_ended_before_it_has_started_does_not_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PRESSURE_SECONDS", 0.0)
    bench.standbys._handle(FREE)
    bench.standbys._handle(Look(0, is_busy=False))
    assert [standby.state for standby in bench.pool.standbys()] == [StandbyState.ENDING]
    await until(lambda: not bench.pool.standbys())
    assert bench.supervisor.running() == set()


async def test_no_process_can_be_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> SmallStandby:
        bench.made.append(None)  # type: ignore[arg-type]
        raise OSError(24, "too many open files")

    monkeypatch.setattr(bench.standbys, "_make", fail)
    bench.standbys.begin()
    await until(lambda: bench.made and not bench.pool.standbys())
    assert await bench.take() == "the last such standby driver has failed; see the task manager's log"


async def test_a_mistake_ends_the_task_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)

    def fail(*_: object) -> SmallStandby:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.standbys, "_make", fail)
    async with running(bench) as pool:
        bench.standbys.begin()
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(ZeroDivisionError):
                await pool


# --- leaving ----------------------------------------------------------------------------------------------------------


async def test_a_task_manager_that_ends_leaves_only_what_jobs_have_taken(tmp_path: Path) -> None:
    bench = Bench(tmp_path, size=2)
    async with running(bench):
        await bench.begin()
        await until(lambda: [each.state for each in bench.pool.standbys()] == [StandbyState.READY] * 2)
        taken = await bench.take()
        await bench.standbys.leave()
        assert bench.pids() == {taken}
        assert await bench.take(bench.wanted("driver-b-1")) == "the task manager is ending"
        await until(lambda: len(list(bench.directory.iterdir())) == 1)


@pytest.mark.parametrize("stage", ["before its directory exists", "during its warm-up"])
async def test_a_warm_up_does_not_delay_the_end_of_the_task_manager(bench: Bench, stage: str) -> None:
    bench.how = "never warm"
    bench.standbys._handle(FREE)
    if stage == "during its warm-up":
        await until(bench.supervisor.running)
    async with asyncio.timeout(DEADLINE):  # much less than the time for a warm-up
        await bench.standbys.leave()
    assert bench.supervisor.running() == set()
    assert len(bench.supervisor._watch.families) == 0


async def test_nothing_starts_before_what_an_earlier_task_manager_left_is_known(bench: Bench) -> None:
    stale = bench.directory / "standby-driver-1-0000"
    stale.mkdir(parents=True)
    used = bench.directory / "standby-driver-2-0000"
    used.mkdir()
    bench.standbys.takes.adopted("driver-a-1", "standby-driver-2-0000@0123456789abcdef")
    bench.standbys.takes.adopted("driver-b-1", "driver-b-1@0123456789abcdef")
    bench.standbys.takes.clean_up()
    assert list(bench.directory.iterdir()) == [used]
    assert bench.pool.standbys() == ()
    bench.standbys.takes.ended("driver-a-1")
    await until(lambda: not used.exists())

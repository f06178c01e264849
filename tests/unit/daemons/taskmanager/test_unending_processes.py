"""A killed process that waits for a mount that hangs may never end. Its task manager starts and ends without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.processes.leftovers import Leftover
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.taskmanager import standbys as keeping
from emberkeep.daemons.taskmanager.launching import launcher as launching
from emberkeep.daemons.taskmanager.launching import leftovers
from emberkeep.daemons.taskmanager.launching.launcher import ProcessLauncher
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode
from emberkeep.daemons.taskmanager.process_places import process_name
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import DriverKey

pytestmark = pytest.mark.anyio

GONE = DriverKey(job_id=JobId("a" * 32), attempt=1)
RUNS = DriverKey(job_id=JobId("b" * 32), attempt=1)
PROFILE = StandbyProfile(kind=StandbyKind.DRIVER, heap_mb=512)


class Supervisor:
    """None of its processes ends. ``ended`` are those that it was told to end."""

    def __init__(self) -> None:
        own = own_identity()
        members = {own.pid: own.start_ticks}
        names = [process_name(GONE), process_name(RUNS)]
        self.left = [Leftover(name, f"{name}@1", own, members) for name in names]
        self.ended: list[str] = []

    async def leftovers(self) -> list[Leftover]:
        return self.left

    def adopt(self, leftover: Leftover, on_exit: Callable[[Exit], None]) -> None:
        pass

    async def end_leftover(self, leftover: Leftover, grace: float) -> None:
        await self.stop(leftover.name, grace)

    async def start(self, request: StartRequest, on_exit: Callable[[Exit], None]) -> int:
        return own_identity().pid

    async def raise_priority(self, name: str) -> None:
        pass

    async def stop(self, name: str, grace: float) -> None:
        self.ended.append(name)
        await asyncio.Event().wait()


class NoLibraries:
    async def take_back(self, *_: Any) -> None:
        pass


class Warming:
    """A standby process whose warm-up does not end."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    def start_request(self) -> StartRequest:
        return StartRequest("standby", (), {}, Path(), Path(), Path())

    async def warmed(self, pid: int) -> None:
        self.began.set()
        await asyncio.Event().wait()

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (launching, leftovers, keeping):
        monkeypatch.setattr(module, "KILLED_SECONDS", 0.01)


def launcher(supervisor: Supervisor, directory: Path, standby: Warming | None = None) -> ProcessLauncher:
    node = LaunchNode(
        "tm",
        "127.0.0.1",
        WorkingDirectory(directory),
        directory / "token",
        JavaRuntime(None, Path("java"), 17),
        Configuration(),
    )
    pool = StandbyPool({StandbyKind.DRIVER: 1}, {StandbyKind.DRIVER: PROFILE})
    return ProcessLauncher(
        node,
        cast(ProcessSupervisor, supervisor),
        cast(LibraryCache, NoLibraries()),
        pool=pool,
        make_standby=cast(Any, lambda *_: standby),
    )


async def test_a_task_manager_starts_although_a_leftover_does_not_end(tmp_path: Path) -> None:
    supervisor = Supervisor()
    launched = launcher(supervisor, tmp_path)
    with capture_logs() as said:
        adopted = await launched.adopt({RUNS}, frozenset(), {RUNS.job_id})
    assert adopted.alive == {RUNS: own_identity().pid}
    assert supervisor.ended == [process_name(GONE)]
    assert [each["processes"] for each in said if each["log_level"] == "error"] == [[process_name(GONE)]]
    await launched.leave()


async def test_a_task_manager_that_retires_ends_although_a_killed_process_does_not(tmp_path: Path) -> None:
    supervisor = Supervisor()
    launched = launcher(supervisor, tmp_path)
    await launched.adopt({RUNS}, frozenset(), {RUNS.job_id})
    with capture_logs() as said:
        await launched.kill_all()
    assert supervisor.ended == [process_name(GONE), process_name(RUNS)]
    assert [each["processes"] for each in said if each["log_level"] == "error"] == [[process_name(RUNS)]]


async def test_a_task_manager_ends_although_a_standby_process_does_not(tmp_path: Path) -> None:
    supervisor, standby = Supervisor(), Warming()
    launched = launcher(supervisor, tmp_path, standby)
    launched.standbys.free_mb = lambda: 10_000
    launched.standbys.begin()
    running = asyncio.create_task(launched.standbys.run())
    await standby.began.wait()
    with capture_logs() as said:
        await launched.leave()
    running.cancel()
    assert len(supervisor.ended) == 1
    assert [each["processes"] for each in said if each["log_level"] == "error"] == [supervisor.ended]

"""A job names directories on mounts that may never answer. Its task manager goes on for all other jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import JobId
from emberkeep.daemons.taskmanager.launching import launcher as launching
from emberkeep.daemons.taskmanager.launching import starts
from emberkeep.daemons.taskmanager.launching.launcher import ProcessLauncher
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode
from emberkeep.daemons.taskmanager.process_places import process_name
from emberkeep.protocol.messages.task_managers import StartDriver
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import DriverKey
from tests.unit.taskmanager.agent_bench import start_driver, start_executor

pytestmark = pytest.mark.anyio

HUNG, OTHER = JobId("a" * 32), JobId("b" * 32)


class Mount:
    """The directories of one job do not answer until ``answers`` is set."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answers = threading.Event()

    def directory_of(self, request: StartDriver, _: object) -> Path | None:
        if request.graph.job_id == HUNG:
            self.asked.set()
            self.answers.wait()
        return None


class Supervisor:
    def __init__(self) -> None:
        self.started: list[str] = []

    async def start(self, request: StartRequest, on_exit: Callable[[Exit], None]) -> int:
        self.started.append(request.name)
        return 7

    async def stop(self, name: str, grace: float) -> None:
        """It runs no more."""


class NoLibraries:
    async def bind(self, *_: Any, **__: Any) -> tuple[()]:
        return ()

    def release(self, *_: Any) -> None:
        """Nothing is held."""


class Bench:
    def __init__(self, directory: Path, mount: Mount) -> None:
        root = WorkingDirectory(directory)
        self.mount = mount
        self.supervisor = Supervisor()
        java = JavaRuntime(None, directory / "java", 17)
        node = LaunchNode("tm", "127.0.0.1", root, directory / "token", java, Configuration())
        self.libraries = NoLibraries()
        supervisor, libraries = cast(ProcessSupervisor, self.supervisor), cast(LibraryCache, self.libraries)
        self.launcher = ProcessLauncher(node, supervisor, libraries)

    async def start(self, job_id: JobId) -> None:
        request = start_driver()
        graph = msgspec.structs.replace(request.graph, job_id=job_id)
        await self.launcher.start_driver(msgspec.structs.replace(request, graph=graph))

    async def hanging(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self.start(HUNG))
        async with asyncio.timeout(60):
            while not self.mount.asked.is_set():  # noqa: ASYNC110 - a thread does it
                await asyncio.sleep(0.005)
        assert not self.mount.answers.is_set(), "the event loop has waited for the mount"
        return task


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    mount = Mount()
    monkeypatch.setattr(starts, "_working_directory", mount.directory_of)
    gives_up = threading.Timer(30.0, mount.answers.set)  # so that a hanging event loop is a failure
    gives_up.start()
    yield Bench(tmp_path, mount)
    gives_up.cancel()
    mount.answers.set()


async def test_drivers_of_other_jobs_start_while_a_directory_does_not_answer(bench: Bench) -> None:
    hanging = await bench.hanging()
    await bench.start(OTHER)
    bench.mount.answers.set()
    await hanging
    assert bench.supervisor.started == [f"driver-{OTHER}-1", f"driver-{HUNG}-1"]


async def test_a_start_does_not_wait_for_ever(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "PREPARING_SECONDS", 0.05)
    impatient = Bench(tmp_path, bench.mount)
    with pytest.raises(Fatal, match="a file system does not answer") as failure:
        await impatient.start(HUNG)
    assert isinstance(failure.value.__cause__, OSError), "the next attempt may find that it answers"
    assert impatient.supervisor.started == []


async def test_a_driver_that_is_told_to_end_meanwhile_is_not_started(bench: Bench) -> None:
    hanging = await bench.hanging()
    key = DriverKey(job_id=HUNG, attempt=1)
    await bench.launcher.stop(key, 0.0)
    with pytest.raises(Fatal, match="asked to end before it was started"):
        await hanging
    assert process_name(key) not in bench.supervisor.started


async def test_a_driver_that_is_told_to_end_at_the_end_of_a_step_is_not_started(bench: Bench) -> None:
    key = DriverKey(job_id=OTHER, attempt=1)

    async def bind(*_: Any, **__: Any) -> tuple[()]:
        stops.append(asyncio.create_task(bench.launcher.stop(key, 0.0)))  # it begins when this has returned
        return ()

    stops: list[asyncio.Task[None]] = []
    bench.libraries.bind = bind  # type: ignore[method-assign]
    with pytest.raises(Fatal, match="asked to end before it was started"):
        await bench.start(OTHER)
    await asyncio.gather(*stops)
    assert bench.supervisor.started == []


async def test_logs_that_cannot_be_made_fail_the_start_alone(bench: Bench, tmp_path: Path) -> None:
    """Logs may be on another disk than what a process works with."""
    (tmp_path / "logs").write_text("no directory")
    (tmp_path / "java").touch()
    for start in (bench.start(OTHER), bench.launcher.start_executor(start_executor())):
        with pytest.raises(Fatal, match="logs") as failure:
            await start
        assert isinstance(failure.value.__cause__, OSError), "the next attempt may find them"
    assert bench.supervisor.started == []

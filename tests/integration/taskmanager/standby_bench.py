"""A pool of small standby processes, and a job that takes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import identify
from emberkeep.daemons.records.standby_messages import Import
from emberkeep.daemons.taskmanager.standby_takes import StandbyDirectories, TakeOver
from emberkeep.daemons.taskmanager.standbys import Standbys
from emberkeep.jobs.model import JobGraph
from emberkeep.slots.standbys.events import Look, StandbyKind, StandbyProfile
from emberkeep.slots.standbys.machine import StandbyPool
from tests.integration.taskmanager.standby_programs import SmallStandby, small_place

DEADLINE = 120.0  # seconds; no test waits for it when all is well
PROFILE = StandbyProfile(StandbyKind.DRIVER, 1024)
PLENTY = 100_000  # MiB
FREE = Look(PLENTY, is_busy=False)


class FakeJobFiles:
    """Implements ReservedFiles without files. ``problem``: raised by ``fetch``. ``held``: standbys with files."""

    def __init__(self) -> None:
        self.problem: EmberkeepError | None = None
        self.held: set[str] = set()

    async def fetch(self, standby: str, directory: Path, graph: JobGraph) -> Import:
        if self.problem is not None:
            raise self.problem
        self.held.add(standby)
        return Import(script="", module=graph.job_id, places=(str(directory),))

    def release(self, standby: str, job_id: JobId) -> None:
        del job_id
        self.held.discard(standby)


class Bench:
    """A pool of one standby, and a job that takes it."""

    def __init__(self, directory: Path, size: int = 1) -> None:
        self.root = directory
        self.directory = directory / "standbys"
        self.supervisor = ProcessSupervisor(directory / "records", linger=0.5)
        self.pool = StandbyPool({StandbyKind.DRIVER: size}, {StandbyKind.DRIVER: PROFILE})
        self.job_files = FakeJobFiles()
        self.standbys = Standbys(
            StandbyDirectories(self.directory), self.job_files, self.make, self.supervisor, self.pool
        )
        self.free_mb = PLENTY
        self.standbys.free_mb = lambda: self.free_mb
        self.how = "runs"
        self.made: list[SmallStandby] = []
        self.exits: list[Exit] = []

    def make(self, name: str, directory: Path, profile: StandbyProfile) -> SmallStandby:
        environ = {"PATH": os.environ["PATH"]}
        self.made.append(SmallStandby(small_place(name, directory, environ), profile, self.how))
        return self.made[-1]

    async def begin(self, how: str = "runs") -> None:
        """Let the pool start processes that behave like this, and wait until the first is ready."""
        self.how = how
        self.standbys.begin()
        await until(self.is_ready)

    def is_ready(self) -> bool:
        return self.pool.ready(PROFILE) is not None

    def pids(self) -> set[int]:
        """The leaders of all processes that the supervisor watches."""
        families = self.supervisor._watch.families.values()
        return {family.leader.pid for family in families if family.leader is not None}

    def wanted(self, name: str = "driver-a-1", **changes: object) -> TakeOver:
        values: dict[str, object] = {
            "name": name,
            "argv": [sys.executable, "spec.record"],
            "environ": {"PATH": os.environ["PATH"], "JOB": "a"},
            "directory": self.root,
            "stdout": self.root / f"{name}.stdout",
            "stderr": self.root / f"{name}.stderr",
        }
        request = StartRequest(**{**values, **changes})  # type: ignore[arg-type]
        return TakeOver(request, None, self.exits.append, lambda: None)

    async def take(self, wanted: TakeOver | None = None) -> int | str:
        return await self.standbys.take(PROFILE, wanted or self.wanted())

    async def failed_take(self, wanted: TakeOver | None = None) -> str:
        """Take the process in vain. Nothing is left of it, and its end is no exit of the job's process."""
        pids, running = self.pids(), self.supervisor.running()
        assert running
        self.standbys.job_starts()  # so that no other process starts
        taken = await self.take(wanted)
        assert isinstance(taken, str)
        assert {pid for pid in pids if identify(pid) is not None} == set()
        assert self.supervisor.running() == set()
        assert self.exits == []
        assert list(self.directory.iterdir()) == []
        return taken


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[asyncio.Task[object]]:
    """Run the supervisor and the pool. At the end, all processes have ended and neither has failed."""
    watching = asyncio.create_task(bench.supervisor.run())
    pool: asyncio.Task[object] = asyncio.create_task(bench.standbys.run())
    try:
        yield pool
        await bench.standbys.leave()
        for name in bench.supervisor.running():
            await bench.supervisor.stop(name, 0.0)
        assert not watching.done(), "the supervisor has failed"
    finally:
        for task in (pool, watching):
            task.cancel()
        await asyncio.wait({pool, watching})
        await bench.supervisor.close()


def carried_by_any_process(directory: Path) -> bool:
    """True if any process runs in this directory, or below it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(directory):
                    return True
    return False

"""A Launcher without processes: it records its requests, and the test decides when a process ends.

Its processes outlive the task manager that uses it; the next one adopts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.messages.task_managers import ReservedStandby, StartDriver
from emberkeep.slots.model import ProcessStart
from emberkeep.taskmanager.ports import Adopted, DriverKey, ExecutorKey, ProcessExit, ProcessKey, StartedProcess

KILLED = -9


class FakeLauncher:
    """Implements Launcher. A start takes ``start_seconds``. If ``obeys`` is False, ``stop`` kills after ``grace``."""

    def __init__(self) -> None:
        self.start_seconds = 0.0
        self.obeys = True
        self.problems: list[EmberkeepError] = []  # raised by the next starts, one per start
        self.alive: dict[ProcessKey, int] = {}  # pids
        self.started: list[StartDriver | StartExecutor] = []
        self.stops: list[tuple[ProcessKey, float]] = []
        self.decommissioned: list[ExecutorKey] = []
        self.forgotten: list[JobId] = []
        self.reserved: tuple[ReservedStandby, ...] = ()
        self.kept: list[frozenset[JobId]] = []  # jobs kept at each adoption
        self.outcomes: dict[DriverKey, AttemptOutcome] = {}  # left by drivers of an earlier task manager process
        self._gone: dict[ProcessKey, asyncio.Event] = {}
        self._told: Callable[[ProcessExit], None] | None = None
        self._next_pid = 1000

    def on_exit(self, callback: Callable[[ProcessExit], None]) -> None:
        self._told = callback

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        for key in [key for key in self.alive if key not in wanted]:
            del self.alive[key]
            self._gone.pop(key).set()
        outcomes = {
            key: outcome for key, outcome in self.outcomes.items() if jobs is None or key in wanted or key in ended
        }
        self.kept.append(frozenset(key.job_id for key in outcomes) if jobs is None else frozenset(jobs))
        return Adopted(alive=dict(self.alive), outcomes=outcomes)

    async def start_driver(self, request: StartDriver) -> StartedProcess:
        key = DriverKey(job_id=request.graph.job_id, attempt=request.attempt)
        pid = await self._start(key, request)
        return StartedProcess(pid=pid, start=ProcessStart.COLD, why_cold="there are no standby processes")

    async def start_executor(self, request: StartExecutor) -> StartedProcess:
        pid = await self._start(executor_key(request), request)
        return StartedProcess(pid=pid, start=ProcessStart.COLD, why_cold="there are no standby processes")

    async def _start(self, key: ProcessKey, request: StartDriver | StartExecutor) -> int:
        self.started.append(request)
        await asyncio.sleep(self.start_seconds)
        if self.problems:
            raise self.problems.pop(0)
        self._next_pid += 1
        self.alive[key] = self._next_pid
        self._gone[key] = asyncio.Event()
        return self._next_pid

    def reserve_standbys(self, reserved: tuple[ReservedStandby, ...]) -> None:
        self.reserved = reserved

    async def stop(self, key: ProcessKey, grace: float) -> None:
        self.stops.append((key, grace))
        gone = self._gone.get(key)
        if gone is None:
            return
        if grace > 0 and not self.obeys:
            try:
                async with asyncio.timeout(grace):
                    await gone.wait()
            except TimeoutError:
                pass
        self.end(key, KILLED if grace == 0 or not self.obeys else 143)

    def decommission(self, key: ExecutorKey) -> None:
        self.decommissioned.append(key)

    async def forget_job(self, job_id: JobId) -> None:
        self.forgotten.append(job_id)

    def end(
        self, key: ProcessKey, exit_code: int | None, outcome: AttemptOutcome | None = None, detail: str = ""
    ) -> None:
        """End a process, unless it has already ended."""
        if self.alive.pop(key, None) is None:
            return
        self._gone.pop(key).set()
        if self._told is not None:
            self._told(ProcessExit(key=key, exit_code=exit_code, outcome=outcome, detail=detail))

    def executors(self) -> list[ExecutorKey]:
        """Return the living executors."""
        return [key for key in self.alive if isinstance(key, ExecutorKey)]

    def drivers(self) -> list[DriverKey]:
        """Return the living drivers."""
        return [key for key in self.alive if isinstance(key, DriverKey)]


def executor_key(request: StartExecutor) -> ExecutorKey:
    """Return the key of the process that a request starts."""
    return ExecutorKey(
        job_id=request.job_id,
        attempt=request.attempt,
        allocation_id=request.allocation_id,
        executor_id=request.executor_id,
    )

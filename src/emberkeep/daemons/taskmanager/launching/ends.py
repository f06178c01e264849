"""Reports how processes have ended, once what they left on disk can be read, and ends those that exceed their memory.

An outcome that cannot be read now, or only by a newer release, is not lost: if it were reported as lost, a script that
succeeded would run again. Files are read in threads, because a disk that hangs must not block the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn

import structlog

from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from emberkeep.base.errors import NewerFormat, Unavailable
from emberkeep.base.files.log_tail import last_lines
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.slots.table.memory import reason_of_kernel
from emberkeep.taskmanager.ports import DriverKey, ProcessExit, ProcessKey

log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between tries to read a driver's outcome


class ProcessEnds:
    """Reports the ends of one ProcessLauncher's processes."""

    def __init__(self, places: ProcessPlaces, tell: Callable[[ProcessExit], None]) -> None:
        self._places = places
        self._tell = tell
        self._reasons: dict[str, str] = {}  # why processes that are ending had to, by name
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._mistakes: asyncio.Queue[BaseException] = asyncio.Queue()

    def explain(self, name: str, reason: str) -> None:
        """Report this reason with the end of a process, which the caller ends."""
        self._reasons[name] = reason

    def begin(self, key: ProcessKey, end: Exit) -> None:
        """Report this end as soon as the outcome can be read."""
        reason = self._reasons.pop(end.name, "")
        task = asyncio.create_task(self._tell_once_read(key, end, reason), name=f"end of {end.name}")
        self._telling[end.name] = task
        task.add_done_callback(lambda done: self._told(end.name, done))

    async def run(self) -> NoReturn:
        """Wait until cancelled. Raises an error that prevented the report of a process's end.

        The next task manager process reads that end again.
        """
        raise await self._mistakes.get()

    async def told(self, name: str) -> None:
        """Return once the end of this process has been reported, if it has ended."""
        task = self._telling.get(name)
        if task is not None:
            await asyncio.wait({task})

    async def leave(self) -> None:
        """Stop reporting. The next task manager process reports the ends that are left."""
        tasks = list(self._telling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell_once_read(self, key: ProcessKey, end: Exit, reason: str) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                told = await asyncio.to_thread(self._read, key, end, reason)
            except (Unavailable, NewerFormat) as error:  # NewerFormat lasts for as long as this release runs
                log.warning(
                    "cannot read a driver's outcome now; its job waits for it",
                    process=end.name,
                    reason=str(error),
                    again_in=pause,
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._tell(told)
                return

    def _read(self, key: ProcessKey, end: Exit, reason: str) -> ProcessExit:
        outcome = self._places.outcome(key, end.exit_code, reason) if isinstance(key, DriverKey) else None
        # The last output of a killed process does not explain its end.
        killed = end.exit_code is not None and end.exit_code <= 0
        detail = reason or ("" if killed else last_lines(self._places.stderr(key)))
        return ProcessExit(key=key, exit_code=end.exit_code, outcome=outcome, detail=detail)

    def _told(self, name: str, task: asyncio.Task[None]) -> None:
        if self._telling.get(name) is task:
            del self._telling[name]
        mistake = None if task.cancelled() else task.exception()
        if mistake is not None:
            self._mistakes.put_nowait(mistake)


class ProcessMemory:
    """Implements ``memory_guard.MeasuredProcesses``. ``running``: the launcher's processes by name."""

    def __init__(self, supervisor: ProcessSupervisor, ends: ProcessEnds, running: Mapping[str, ProcessKey]) -> None:
        self._supervisor = supervisor
        self._ends = ends
        self._running = running

    async def memory_mb(self) -> dict[ProcessKey, int]:
        used = await self._supervisor.memory_mb()
        return {key: used[name] for name, key in self._running.items() if name in used}

    async def exceeding(self) -> dict[ProcessKey, int]:
        if not self._supervisor.groups.limited():
            return {}
        limits = await asyncio.to_thread(self._supervisor.groups.exceeding)
        return {key: limits[name] for name, key in self._running.items() if name in limits}

    async def end(self, key: ProcessKey, reason: str) -> None:
        self._ends.explain(process_name(key), reason)
        await self._supervisor.stop(process_name(key), 0.0)

    def ended(self, key: ProcessKey, end: Exit) -> None:
        """Explain the end of a process, if the kernel has ended it because of its limit."""
        if end.exceeded_mb is not None:
            self._ends.explain(end.name, reason_of_kernel(end.exceeded_mb, is_driver=isinstance(key, DriverKey)))

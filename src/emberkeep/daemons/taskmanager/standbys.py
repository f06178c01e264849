"""The standby processes of a task manager: warm drivers and executors that no job has taken yet.

``StandbyPool`` decides which ones to keep. This module starts, warms and ends them, and turns one into a job's process
when the launcher would otherwise start that process. A standby process that fails while it is taken costs time only:
it is killed before the launcher starts a cold process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, OnExit, ProcessSupervisor
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.hostile import remove_tree
from emberkeep.daemons.taskmanager.standby_starts import (
    StandbyDriver,
    StandbyExecutorProcess,
    StandbyPlace,
    StandbyProcess,
)
from emberkeep.slots.standbys.events import (
    Asked,
    EndStandby,
    Look,
    StandbyEffect,
    StandbyEnded,
    StandbyEvent,
    StandbyKind,
    StandbyProfile,
    StandbyTaken,
    StartStandby,
    Warmed,
)
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.standby.priority import can_be_raised, lower

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
STARTING_SECONDS = 15.0  # for which a process of a job counts as starting
_PREFIX = "standby-"


@dataclass
class _Kept:
    """A standby process that runs. ``name``: of the process, and of its directory."""

    name: str
    process: StandbyProcess
    task: asyncio.Task[None]


class Standbys:
    """Owns the standby processes of one task manager. Belongs to the task manager's event loop.

    ``directory``: for the processes' own files. ``environ``: what all processes of jobs here inherit, by kind.
    ``free_mb``: returns the memory in MiB that slots and drivers leave free.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        java: JavaRuntime,
        environ: Callable[[StandbyKind, Path], Mapping[str, str]],
        supervisor: ProcessSupervisor,
        pool: StandbyPool,
    ) -> None:
        self._directory = directory
        self._host = host
        self._java = java
        self._environ = environ
        self._supervisor = supervisor
        self._pool = pool
        self._kept: dict[str, _Kept] = {}
        self._places: dict[str, Path] = {}  # directories of taken processes, by the processes' names
        self._killing: set[asyncio.Task[None]] = set()
        self._last_start = -STARTING_SECONDS
        self._is_leaving = False
        self._begun = asyncio.Event()
        self._failure: asyncio.Future[NoReturn] | None = None
        self.free_mb: Callable[[], int] = lambda: 0

    # --- for the launcher ---------------------------------------------------------------------------------------------

    def why_none(self, profile: StandbyProfile) -> str | None:
        """Return why no standby process can be taken now; None if one can, "" if this task manager keeps none."""
        self._last_start = self._now()
        if self._pool.ready(profile) is not None:
            return None
        reason = self._pool.why_none(profile)
        self._handle(Asked(profile))
        return reason

    async def take(
        self, profile: StandbyProfile, request: StartRequest, launch: ExecutorLaunch | None, on_exit: OnExit
    ) -> int | str:
        """Turn a standby process into the one that ``request`` would start. Return its pid, or why none was taken.

        ``launch``: of an executor; None for a driver. If no process was taken, nothing is left of it.
        """
        standby_id = self._pool.ready(profile)
        if standby_id is None:
            return self.why_none(profile) or ""
        kept = self._kept[standby_id]
        reason = kept.process.why_unfit(request, launch) or ("it runs as another user" if request.user else "")
        if reason:
            self._handle(Asked(profile, fits=False))
            return reason
        del self._kept[standby_id]
        kept.task.cancel()  # it waits for the process's end
        self._handle(StandbyTaken(standby_id))
        self._handle(Asked(profile))
        return await self._turn(kept, request, launch, on_exit)

    async def _turn(
        self, kept: _Kept, request: StartRequest, launch: ExecutorLaunch | None, on_exit: OnExit
    ) -> int | str:
        abandoned = False

        def ended(end: Exit) -> None:
            if not abandoned:
                on_exit(end)

        self._places[request.name] = self._directory / kept.name
        try:
            await asyncio.to_thread(_move_output, self._directory / kept.name, request)
            pid = await self._supervisor.rename(kept.name, request.name, ended)
            await kept.process.become(request, launch)
        except (EmberkeepError, OSError) as error:
            abandoned = True
            log.warning("a standby process failed while it was taken", process=request.name, reason=str(error))
            await self._discard(kept.name, request.name)
            return f"the standby process failed while it was taken: {error}"
        except BaseException:
            abandoned = True
            await asyncio.shield(self._discard(kept.name, request.name))
            raise
        finally:
            kept.process.close()
        log.info("a job took a standby process", process=request.name, pid=pid)
        return pid

    async def _discard(self, *names: str) -> None:
        """Kill a process that has one of these names, and return once nothing of it is left."""
        for name in names:
            await self._supervisor.stop(name, 0.0)
        self.ended(names[-1])

    def ended(self, name: str) -> None:
        """Delete the directory of a process that was taken and has ended."""
        directory = self._places.pop(name, None)
        if directory is not None:
            asyncio.get_running_loop().run_in_executor(None, remove_tree, directory)

    def adopted(self, name: str, marker: str) -> None:
        """Note that a process which an earlier task manager process took from its standbys still runs."""
        directory = self._directory / marker.rpartition("@")[0]
        if directory.is_dir():
            self._places[name] = directory

    def clean_up(self) -> None:
        """Delete the directories of standbys that no longer run. ``run`` waits for ``begin``. Blocks."""
        used = set(self._places.values())
        for directory in sorted(self._directory.iterdir()) if self._directory.is_dir() else ():
            if directory not in used:
                remove_tree(directory)

    def begin(self) -> None:
        """Let ``run`` start standby processes."""
        self._begun.set()

    # --- the pool -----------------------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Keep the pool until cancelled. Raises any mistake."""
        await self._begun.wait()
        self._failure = asyncio.get_running_loop().create_future()
        try:
            while True:
                is_busy = self._now() < self._last_start + STARTING_SECONDS
                self._handle(Look(self.free_mb(), is_busy))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await asyncio.shield(self._failure)
        finally:
            self._failure = None

    async def leave(self) -> None:
        """End all standby processes that no job has taken. No others start."""
        self._is_leaving = True
        for kept in list(self._kept.values()):
            await self._supervisor.stop(kept.name, 0.0)
        await asyncio.gather(*(kept.task for kept in self._kept.values()), *self._killing, return_exceptions=True)

    def _handle(self, event: StandbyEvent) -> None:
        if self._is_leaving:
            return
        for effect in self._pool.handle(event, self._now()):
            self._carry_out(effect)

    def _carry_out(self, effect: StandbyEffect) -> None:
        match effect:
            case StartStandby():
                self._start(effect.standby_id, effect.profile)
            case EndStandby():
                log.info("ending a standby process", standby=effect.standby_id, reason=effect.reason)
                self._kill(self._kept[effect.standby_id].name)

    def _kill(self, name: str) -> None:
        task = asyncio.create_task(self._supervisor.stop(name, 0.0), name=f"end {name}")
        self._killing.add(task)
        task.add_done_callback(self._killing.discard)
        task.add_done_callback(self._mistakes)

    def _start(self, standby_id: str, profile: StandbyProfile) -> None:
        name = f"{_PREFIX}{standby_id}-{secrets.token_hex(4)}"
        directory = self._directory / name
        place = StandbyPlace(name, directory, self._host, self._java, self._environ(profile.kind, directory))
        kind = StandbyDriver if profile.kind is StandbyKind.DRIVER else StandbyExecutorProcess
        process: StandbyProcess = kind(place, profile)
        task = asyncio.create_task(self._warm(standby_id, place, process), name=f"warm {name}")
        self._kept[standby_id] = _Kept(name, process, task)
        task.add_done_callback(self._mistakes)

    async def _warm(self, standby_id: str, place: StandbyPlace, process: StandbyProcess) -> None:
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(place.directory.mkdir, mode=0o700, parents=True)
            request = process.start_request()
            pid = await self._supervisor.start(request, ended.set_result)
            if can_be_raised():
                lower(pid)
            began = self._now()
            await process.warmed(pid)
        except (EmberkeepError, OSError) as error:
            log.warning("a standby process could not be warmed", standby=standby_id, reason=str(error))
            await self._supervisor.stop(place.name, 0.0)
            self._gone(standby_id, place, str(error))
            return
        except BaseException:
            process.close()
            raise
        log.info("a standby process is ready", standby=standby_id, pid=pid, seconds=round(self._now() - began, 1))
        self._handle(Warmed(standby_id))
        await ended
        if standby_id in self._kept:  # no job has taken it
            self._gone(standby_id, place, "it has ended")

    def _gone(self, standby_id: str, place: StandbyPlace, reason: str) -> None:
        kept = self._kept.pop(standby_id, None)
        if kept is not None:
            kept.process.close()
        self._handle(StandbyEnded(standby_id, reason))
        asyncio.get_running_loop().run_in_executor(None, remove_tree, place.directory)

    def _mistakes(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _move_output(directory: Path, request: StartRequest) -> None:
    """Make the output of a standby process that of a job's process, without what the warm-up wrote. Blocks.

    The process keeps the files open. Raises StandbyFailed (output of an earlier process is there), OSError.
    """
    for name, target in (("stdout", request.stdout), ("stderr", request.stderr)):
        if target.exists():
            raise StandbyFailed(f"{target} exists already")
        os.truncate(directory / name, 0)
        (directory / name).rename(target)

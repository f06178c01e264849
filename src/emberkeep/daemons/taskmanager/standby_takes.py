"""Standby processes that become processes of jobs.

A standby process that fails while it is taken costs time only: it is killed, and nothing is left of it, before the
launcher starts a cold process. Its end is then not reported, because the job's process has not begun. If it does not
end, because it waits for a mount that hangs, the start fails, and the JobManager starts the process elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from emberkeep.adapters.blocking.threads import ended
from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import KILLED_SECONDS, Exit, OnExit
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal
from emberkeep.base.files.hostile import remove_tree
from emberkeep.base.ids import JobId
from emberkeep.daemons.taskmanager.standby_starts import StandbyProcess
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.jvm.executor_command import ExecutorLaunch

log = structlog.get_logger(__name__)

BEGINNING_SECONDS = 10.0  # for which the optimizing compilers of a process that was taken stay at idle priority


class Supervisor(Protocol):
    """What standby processes need of ``ProcessSupervisor``, which says more."""

    async def start(self, request: StartRequest, on_exit: OnExit) -> int:
        """Start a process and return its pid."""

    async def stop(self, name: str, grace: float) -> None:
        """End a process. Return once nothing is left of it and its end was reported."""

    async def rename(self, name: str, new_name: str, on_exit: OnExit, share: Share | None = None) -> int:
        """Give a process another name, another ``on_exit`` and another share of the node. Return its pid."""

    async def raise_priority(self, name: str) -> None:
        """Give a process and what it has started the normal priority, if it runs. Raises OSError."""


@dataclass(frozen=True)
class TakeOver:
    """What a standby process must become.

    - ``launch``: the executor to launch; None for a driver.
    - ``on_exit``: called once, at the end of the job's process; never if no process was taken.
    - ``record``: writes what the next task manager process must know of the process. Blocks. Raises EmberkeepError.
    - ``unrecord``: takes this back if no process was taken. Blocks for a moment.
    - ``job_id``: the job, which may have a reserved standby.
    """

    request: StartRequest
    launch: ExecutorLaunch | None
    on_exit: OnExit
    record: Callable[[], None] = lambda: None
    unrecord: Callable[[], None] = lambda: None
    job_id: JobId | None = None

    def why_unfit(self) -> str:
        """Return why no standby process can become this one; "" if one with the right profile can."""
        if self.request.user is not None:
            return "it runs as another user"
        environ = self.request.environ
        texts = (*environ, *environ.values())
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            return "it needs environment variables that are not UTF-8"
        if any("\0" in text for text in texts) or any(not name or "=" in name for name in environ):
            return "it needs environment variables that cannot be set later"  # a cold start may refuse them
        return ""


class StandbyFiles(Protocol):
    """The directories of standby processes, by the names with which these were started."""

    def directory(self, name: str) -> Path:
        """Return where the directory is, or would be."""

    def has(self, name: str) -> bool:
        """True if there is a directory."""

    async def make(self, name: str) -> None:
        """Make an empty directory. Raises OSError."""

    async def prepare(self, name: str, wanted: TakeOver) -> None:
        """Make the output of a standby process that of a job's process, and record it.

        Raises StandbyFailed (output of an earlier process is there), OSError, EmberkeepError.
        """

    async def remove(self, name: str) -> None:
        """Delete a directory."""

    def remove_later(self, name: str) -> None:
        """Delete a directory without waiting."""

    def clean_up(self, used: AbstractSet[str]) -> None:
        """Delete all directories but these. Blocks."""


class StandbyTakes:
    """Turns standby processes into processes of jobs. Owns the directories of those, which are among ``files``."""

    def __init__(self, files: StandbyFiles, supervisor: Supervisor) -> None:
        self._files = files
        self._supervisor = supervisor
        self._origins: dict[str, str] = {}  # names with which taken processes were started, by those that they have now
        self._killing: set[asyncio.Task[None]] = set()  # ends of processes for which no take waits any longer
        self._beginning: deque[tuple[float, str]] = deque()  # (when its compilers are raised, name) of taken processes

    async def turn(self, name: str, process: StandbyProcess, wanted: TakeOver) -> int | str:
        """Turn the process ``name`` into the wanted one. Return its pid, or why that failed.

        If it fails or is cancelled, the process is killed, and nothing is left of it. Raises Conflict if it does not
        end within KILLED_SECONDS.
        """
        request, end = wanted.request, _End(wanted.on_exit)
        current = name
        try:
            await self._files.prepare(name, wanted)
            pid = await self._supervisor.rename(name, request.name, end, request.share)
            current = request.name
            self._origins[request.name] = name
            await process.become(request, wanted.launch)
        except (EmberkeepError, OSError) as error:
            log.warning("a standby process failed while it was taken", process=request.name, reason=str(error))
            await self._discard(name, current)
            return f"the standby process failed while it was taken: {error}"
        except BaseException:
            with contextlib.suppress(Conflict):
                await self._discard(name, current)
            raise
        finally:
            process.close()
        log.info("a job took a standby process", process=request.name, pid=pid)
        self._beginning.append((asyncio.get_running_loop().time() + BEGINNING_SECONDS, request.name))
        end.pass_on()
        return pid

    async def _discard(self, name: str, current: str) -> None:
        """Kill a process that is now called ``current``. Return once nothing is left.

        If this is cancelled, it raises CancelledError only then, or after KILLED_SECONDS. Raises Conflict if the
        process has not ended by then.
        """
        task = asyncio.create_task(self._kill(name, current), name=f"discard {name}")
        self._killing.add(task)
        task.add_done_callback(self._killed)
        await ended(task, within=KILLED_SECONDS)
        if not task.done():
            log.error("a killed standby process does not end; going on without waiting for it", process=current)
            raise Conflict(
                f"the standby process of {current} was killed and does not end",
                hint="see whether a file system of that node does not answer",
            )
        task.result()

    def _killed(self, task: asyncio.Task[None]) -> None:
        self._killing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a standby process was killed, but its end was not seen", reason=str(error))

    async def _kill(self, name: str, current: str) -> None:
        await self._supervisor.stop(current, 0.0)
        if current != name:
            self._origins.pop(current, None)
        await self._files.remove(name)

    def ended(self, name: str) -> None:
        """Delete the directory of a process that was taken and has ended."""
        origin = self._origins.pop(name, None)
        if origin is not None:
            self._files.remove_later(origin)

    async def raise_compilers(self, *, at_once: bool = False) -> None:
        """Give the processes that were taken BEGINNING_SECONDS ago, or all, their compilers' normal priority, too.

        What cannot be done now, for want of descriptors, is done in a later call.
        """
        now = asyncio.get_running_loop().time()
        failed: list[tuple[float, str]] = []
        while self._beginning and (at_once or self._beginning[0][0] <= now):
            due = self._beginning.popleft()
            try:
                await self._supervisor.raise_priority(due[1])
            except OSError as error:
                log.warning("cannot raise the priority of a process now", process=due[1], reason=str(error))
                failed.append(due)
        self._beginning.extendleft(reversed(failed))

    def adopted(self, name: str, marker: str) -> None:
        """Note that a process which an earlier task manager process took from its standbys still runs."""
        origin = marker.rpartition("@")[0]
        if self._files.has(origin):
            self._origins[name] = origin
            self._beginning.append((0.0, name))

    def clean_up(self) -> None:
        """Delete the directories of standbys that no longer run, before any other starts. Blocks."""
        self._files.clean_up(set(self._origins.values()))


class EndableTakes:
    """Takes of standby processes that end early if their processes must not start after all."""

    def __init__(self) -> None:
        self._takes: dict[str, tuple[asyncio.Timeout, asyncio.Event]] = {}  # by the names of the jobs' processes

    @contextlib.asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Let ``end`` cancel the body, which takes a process. Raises Fatal if that happens."""
        over = asyncio.Event()
        try:
            async with asyncio.timeout(None) as limit:
                self._takes[name] = limit, over
                yield
        except TimeoutError:
            raise Fatal("the process was asked to end before it was started") from None
        finally:
            del self._takes[name]
            over.set()

    async def end(self, name: str) -> None:
        """End a take, if there is one. Return once nothing is left of the process, or once it has been taken."""
        take = self._takes.get(name)
        if take is not None:
            limit, over = take
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
            await over.wait()


class _End:
    """Holds back the report of a process's end until the job has the process: before, a standby would have ended."""

    def __init__(self, on_exit: OnExit) -> None:
        self._on_exit = on_exit
        self._end: Exit | None = None
        self._passes = False

    def __call__(self, end: Exit) -> None:
        if self._passes:
            self._on_exit(end)
        else:
            self._end = end

    def pass_on(self) -> None:
        """Report the end, now if the process has ended already."""
        self._passes = True
        if self._end is not None:
            self._on_exit(self._end)


class StandbyDirectories:
    """Implements StandbyFiles with directories below ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, name: str) -> Path:
        return self._root / name

    def has(self, name: str) -> bool:
        return self.directory(name).is_dir()

    async def make(self, name: str) -> None:
        await asyncio.to_thread(self.directory(name).mkdir, mode=0o700, parents=True)

    async def prepare(self, name: str, wanted: TakeOver) -> None:
        await asyncio.to_thread(_prepare, self.directory(name), wanted)

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(remove_tree, self.directory(name))

    def remove_later(self, name: str) -> None:
        asyncio.get_running_loop().run_in_executor(None, remove_tree, self.directory(name))

    def clean_up(self, used: AbstractSet[str]) -> None:
        for directory in sorted(self._root.iterdir()) if self._root.is_dir() else ():
            if directory.name not in used:
                remove_tree(directory)


def _prepare(directory: Path, wanted: TakeOver) -> None:
    """Turn a standby process's output files into those of a job's process, without what the warm-up wrote. Blocks.

    The process keeps the files open. Raises StandbyFailed, OSError, EmberkeepError.
    """
    for name, target in (("stdout", wanted.request.stdout), ("stderr", wanted.request.stderr)):
        if target.exists():
            raise StandbyFailed(f"{target} exists already")
        os.truncate(directory / name, 0)
        (directory / name).rename(target)
    wanted.record()

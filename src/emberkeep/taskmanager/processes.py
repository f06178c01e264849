"""Starts and stops processes for the TaskExecutor.

Calls to the Launcher have a time limit, and their results come back as events. Nothing is started before the table that
lists it is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec
import structlog

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.messages.task_managers import StartDriver
from emberkeep.slots.table.events import DriverStarted, ExecutorEnded, ExecutorStarted, StopLapsed
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, Launcher, ProcessKey

log = structlog.get_logger(__name__)

RETRY_PAUSE = 1.0  # seconds before another try to start a process after a temporary failure
NOT_WANTED = "it was asked to end before it was started"
KILL_MARGIN = 30.0  # seconds that the system may take to end a killed process before StopLapsed is sent


class DriverNotStarted(msgspec.Struct, frozen=True):
    """A driver that the Launcher could not start, or not in time. ``lasting``: a later start would fail as well."""

    key: DriverKey
    message: str
    lasting: bool = False


ProcessEvent = DriverStarted | DriverNotStarted | ExecutorStarted | ExecutorEnded | StopLapsed


class StartEffect(Protocol):
    """The signature of ``Actor.start_effect``."""

    def __call__(
        self,
        name: str,
        work: Coroutine[Any, Any, None],
        *,
        deadline: float | None,
        on_deadline: Callable[[], None] | None = None,
    ) -> asyncio.Task[None]: ...


class Processes:
    """Starts and stops processes through the Launcher.

    ``start_timeout``: seconds that the start of one process may take, fetching its files included. ``settled`` returns
    once all decisions made so far are on disk, or raises RetryLater.
    """

    def __init__(
        self,
        launcher: Launcher,
        start_effect: StartEffect,
        tell: Callable[[ProcessEvent], None],
        settled: Callable[[], Awaitable[None]],
        start_timeout: float,
    ) -> None:
        self._launcher = launcher
        self._start_effect = start_effect
        self._tell = tell
        self._settled = settled
        self._start_timeout = start_timeout
        self._forgetting: dict[JobId, asyncio.Task[None]] = {}

    def launch_driver(self, request: StartDriver, still_wanted: Callable[[], bool]) -> None:
        """Start a driver. The result is sent as DriverStarted or DriverNotStarted."""
        self._start_effect("launch-driver", self._launch_driver(request, still_wanted), deadline=None)

    async def _launch_driver(self, request: StartDriver, still_wanted: Callable[[], bool]) -> None:
        key = DriverKey(job_id=request.graph.job_id, attempt=request.attempt)
        problem = "its start took too long"
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._settled()
                await self._forgotten(key.job_id)
                while still_wanted():
                    try:
                        driver = await self._launcher.start_driver(request)
                    except RetryLater as error:
                        problem = str(error)
                        log.warning("cannot start a driver yet; trying again", job=key.job_id, reason=problem)
                        await asyncio.sleep(RETRY_PAUSE)
                    else:
                        log.info("driver started", job=key.job_id, attempt=key.attempt, pid=driver.pid)
                        self._tell(DriverStarted(key.job_id, key.attempt, driver.pid, driver.start, driver.why_cold))
                        return
            self._tell(DriverNotStarted(key, NOT_WANTED))
        except TimeoutError:
            message = f"the driver could not be started within {self._start_timeout:g} s: {problem}"
            self._tell(DriverNotStarted(key, message))
        except EmberkeepError as error:
            # An error of a disk or of another store may be temporary.
            passing = isinstance(error, Conflict | RetryLater | UnknownOutcome) or isinstance(
                error.__cause__, OSError | Absent
            )
            self._tell(DriverNotStarted(key, str(error), lasting=not passing))

    def launch_executor(self, request: StartExecutor, still_wanted: Callable[[], bool]) -> None:
        """Start an executor. The result is sent as ExecutorStarted, or as ExecutorEnded without an exit code."""
        self._start_effect("launch-executor", self._launch_executor(request, still_wanted), deadline=None)

    async def _launch_executor(self, request: StartExecutor, still_wanted: Callable[[], bool]) -> None:
        problem = "its start took too long"
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._settled()
                await self._forgotten(request.job_id)
                while still_wanted():
                    try:
                        executor = await self._launcher.start_executor(request)
                    except RetryLater as error:
                        problem = str(error)
                        log.warning("cannot start an executor yet; trying again", job=request.job_id, reason=problem)
                        await asyncio.sleep(RETRY_PAUSE)
                    else:
                        log.info("executor started", job=request.job_id, executor=request.executor_id, pid=executor.pid)
                        how = (executor.pid, executor.start, executor.why_cold)
                        self._tell(ExecutorStarted(request.allocation_id, request.executor_id, *how))
                        return
            problem = NOT_WANTED
        except TimeoutError:
            problem = f"the executor could not be started within {self._start_timeout:g} s: {problem}"
        except EmberkeepError as error:
            problem = str(error)
        self._tell(ExecutorEnded(request.allocation_id, request.executor_id, None, problem))

    def end(self, key: ProcessKey, grace: float) -> None:
        """Stop a process within ``grace`` seconds. The Launcher reports the exit; if it is overdue, send StopLapsed."""
        allocation_id = key.allocation_id if isinstance(key, ExecutorKey) else None
        lapse = StopLapsed(key.job_id, key.attempt, allocation_id)
        self._run("end-process", self._launcher.stop(key, grace), grace + KILL_MARGIN, lapse)

    def decommission(self, key: ExecutorKey) -> None:
        """Ask an executor to hand over its blocks and exit. The exit is reported like any other."""
        log.info("executor is decommissioned", job=key.job_id, executor=key.executor_id)
        self._launcher.decommission(key)

    def forget(self, job_id: JobId) -> None:
        """Delete a job's files."""
        task = self._start_effect("forget-job", self._launcher.forget_job(job_id), deadline=None)
        self._forgetting[job_id] = task
        task.add_done_callback(lambda _: self._forgetting.pop(job_id, None))

    async def _forgotten(self, job_id: JobId) -> None:
        """Wait while the job's old files are being deleted, so that new ones are not deleted with them."""
        task = self._forgetting.get(job_id)
        if task is not None:
            await asyncio.wait({task})

    def _run(self, name: str, work: Coroutine[Any, Any, None], seconds: float, on_lapse: ProcessEvent) -> None:
        self._start_effect(name, work, deadline=seconds, on_deadline=lambda: self._tell(on_lapse))

"""Runs a daemon process: supervised services on one loop, a stop on SIGTERM or SIGINT, and an exit code for each cause.

A service that ends unasked, normally or with an error, ends the process, and so does a thread that dies of an error. A
daemon that runs only in part is worse than one that has ended, because the latter is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import structlog

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.connections import LEAST_DESCRIPTORS, LEAST_ON_NODES, allowed_descriptors
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput
from emberkeep.base.files.errors import file_problem
from emberkeep.base.processes.threads import started_pool
from emberkeep.daemons.announcement import announce_failure
from emberkeep.daemons.arguments import parse_arguments

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CRASHED = 70  # a bug: EX_SOFTWARE
_LAST_SECONDS = 10.0  # for the end in order, after a thread has died; for threads that still work at the end
_THREADS = min(32, (os.cpu_count() or 1) + 4)  # for blocking work; as many as asyncio starts

log = structlog.get_logger(__name__)

Serve = Callable[[Configuration, StateLayout, asyncio.Event], Coroutine[Any, Any, None]]


class ServiceReturned(Exception):
    """A service that must run forever has returned."""


class Services:
    """The background tasks of a process, each with a name. The first one to end ends the process."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._watched: list[asyncio.Task[Any]] = []

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Supervise a task that ``cancel`` leaves to its owner."""
        self._watched.append(task)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Return when ``stop`` is set.

        If a service fails before that, raises its error; if one returns before that, raises ServiceReturned.
        """
        await self.run_until_done(stop.wait())

    async def run_until_done(self, awaited: Coroutine[Any, Any, Any]) -> None:
        """Like ``run_until``, but return when ``awaited`` is done."""
        stopping = asyncio.create_task(awaited, name="awaited")
        try:
            done, _ = await asyncio.wait({stopping, *self._tasks, *self._watched}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            error = task.exception()
            if error is not None:
                raise error
            raise ServiceReturned(f"service {task.get_name()} has ended")

    async def cancel(self) -> None:
        """Cancel all started services, the newest first."""
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def run_daemon(daemon: str, arguments: list[str], serve: Serve) -> int:
    """Parse the arguments, run ``serve`` until it returns, and return the exit code.

    ``daemon``: the name of the process in messages. SIGTERM and SIGINT set the stop event that ``serve`` receives.
    """

    async def supervised(configuration: Configuration, layout: StateLayout) -> None:
        _check_descriptors(LEAST_DESCRIPTORS if daemon == "jobmanager" else LEAST_ON_NODES)
        for warning in configuration.warnings():
            log.warning(warning)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(started_pool(_THREADS, "asyncio"))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            with _death_of_threads(loop) as death:
                await _until_done_or_failed(asyncio.create_task(serve(configuration, layout, stop)), death)
        finally:
            # At its end, asyncio waits without a bound for the threads of its pool: give it one without threads.
            loop.set_default_executor(ThreadPoolExecutor(1))

    if not structlog.is_configured():
        # Until the log file is known, log to standard error: standard output is for the announcement.
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        asyncio.run(supervised(*parse_arguments(daemon, arguments)))
    except EmberkeepError as error:
        log.error("the process ends after an error", process=daemon, reason=error.message, hint=error.hint)
        announce_failure(error)
        sys.stderr.write(f"emberkeep {daemon}: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"  {error.hint}\n")
        return EXIT_USAGE if isinstance(error, InvalidInput) else EXIT_FAILED
    except Exception as error:
        log.critical("crashed", process=daemon, exc_info=error)
        message, hint = file_problem(error) or (f"internal error: {type(error).__name__}: {error}", "")
        sys.stderr.write(f"emberkeep {daemon}: {message}\n")
        if hint:
            sys.stderr.write(f"  {hint}\n")
        return EXIT_CRASHED
    return EXIT_OK


def leave(code: int) -> NoReturn:
    """End this process with an exit code, although a file system that hangs may keep some of its threads for ever."""
    waited_for = threading.Timer(_LAST_SECONDS, _abandon, (code,))
    waited_for.daemon = True
    with contextlib.suppress(RuntimeError):  # the process may have no more threads now
        waited_for.start()
    sys.exit(code)


def _abandon(code: int) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write("emberkeep: ending although a file system does not answer to some threads\n")
        sys.stderr.flush()
    os._exit(code)


def _check_descriptors(least: int) -> None:
    """Raise Fatal if this process may open fewer files and connections than it needs."""
    allowed = allowed_descriptors()
    if allowed < least:
        raise Fatal(
            f"this process may open only {allowed} files and connections, and needs at least {least}",
            hint="raise the limit to 65536: `ulimit -n`, LimitNOFILE= of the service, or limits.conf",
        )


@contextlib.contextmanager
def _death_of_threads(loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Future[None]]:
    """Return a future that fails with the error of the first thread that dies of one, such as one of a library."""
    death = loop.create_future()

    def died(error: BaseException) -> None:
        if not death.done():
            death.set_exception(error)

    def hook(seen: threading.ExceptHookArgs) -> None:
        if seen.exc_value is None or isinstance(seen.exc_value, SystemExit):
            return
        log.critical("a thread died", thread=seen.thread and seen.thread.name, exc_info=seen.exc_value)
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so does the process
            loop.call_soon_threadsafe(died, seen.exc_value)

    before, threading.excepthook = threading.excepthook, hook
    try:
        yield death
    finally:
        threading.excepthook = before
        death.cancel()


async def _until_done_or_failed(serving: asyncio.Task[None], death: asyncio.Future[None]) -> None:
    """Return when ``serving`` is done. Raises its error, or that of ``death`` after ``serving`` was cancelled."""
    try:
        await asyncio.wait({serving, death}, return_when=asyncio.FIRST_COMPLETED)
        if death.done():
            serving.cancel()
            _, late = await asyncio.wait({serving}, timeout=_LAST_SECONDS)
            if late:
                os._exit(EXIT_CRASHED)  # it waits for the thread that died
            death.result()
    finally:
        serving.cancel()
    await serving

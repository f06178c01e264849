"""Keeps a class-data archive on this node: starts a background process that builds one if none fits.

Jobs never wait for the archive and never fail without it. So whatever prevents a build is logged once, and this process
does not try again; ``emberkeep prepare`` or the next task manager process may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.files.log_tail import last_lines
from emberkeep.base.import_path import with_safe_path
from emberkeep.daemons.archive_builder import EXIT_BUSY
from emberkeep.daemons.process_main import EXIT_OK, Services
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.class_archive import (
    default_directory,
    discard_unfinished,
    find_class_archive,
    is_being_built,
)

log = structlog.get_logger(__name__)
_NAME = "archive-builder"
_PAUSE = 60.0  # seconds between two looks while another process builds
_END_SECONDS = 2.0  # for a killed builder, which gets little processor time even for its end


def _builder_command() -> list[str]:
    return [sys.executable, "-P", "-m", "emberkeep.daemons.archive_builder", str(os.getpid())]


@dataclass(frozen=True)
class ArchiveBuild:
    """What a task manager needs to have an archive built.

    ``directory`` is the task manager's; ``archives`` is where the archive belongs. ``command`` starts the builder.
    """

    java: JavaRuntime
    directory: WorkingDirectory
    archives: Path = field(default_factory=lambda: default_directory(os.environ))
    command: Sequence[str] = field(default_factory=_builder_command)
    pause: float = _PAUSE

    async def run(self, delay: float = 0.0) -> None:
        """Build an archive after ``delay`` seconds if none fits, then wait until cancelled. Kill the builder then."""
        await asyncio.sleep(delay)
        while True:
            if await self._is_settled():
                break
            await asyncio.sleep(self.pause)
        await asyncio.Event().wait()

    async def _is_settled(self) -> bool:
        """Build if needed and possible. False if another process is building: its build may be cut short."""
        try:
            if await asyncio.to_thread(find_class_archive, self.java, self.archives, os.environ) is not None:
                return True
            if await asyncio.to_thread(is_being_built, self.archives):
                return False
            end = await self._build()
        except (EmberkeepError, OSError) as error:
            _log_failure(str(error))
            return True
        if end.exit_code == EXIT_BUSY:
            return False
        if end.exit_code == EXIT_OK:
            log.info("built the class archive: JVMs that start from now on use it", directory=str(self.archives))
        elif end.exit_code is not None and end.exit_code < 0:
            _log_failure(f"its process was killed by signal {-end.exit_code}")
        else:
            _log_failure(last_lines(self._output).rpartition("\n")[2])
        return True

    async def _build(self) -> Exit:
        """Run the builder to its end. If cancelled, kill it. Raises Fatal."""
        request = StartRequest(
            name=_NAME,
            argv=self.command,
            environ=with_safe_path(os.environ, None)[0],
            directory=self.directory.root,
            stdout=self._output,
            stderr=self._output,
        )
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        async with _supervisor(self.directory.archive_builder) as (supervisor, watching):
            for leftover in await supervisor.leftovers():
                await supervisor.end_leftover(leftover, 0.0)
            pid = await supervisor.start(request, ended.set_result)
            log.info("building the class archive in the background", directory=str(self.archives))
            try:
                waited: set[asyncio.Future[Any]] = {ended, watching}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    watching.result()  # raises the error that ended the supervision
                return ended.result()
            finally:
                await self._end(supervisor, pid)

    async def _end(self, supervisor: ProcessSupervisor, pid: int) -> None:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await supervisor.stop(_NAME, 0.0)
        except (TimeoutError, RetryLater):
            log.warning("the builder of the class archive was killed and has not ended yet")
        await asyncio.to_thread(discard_unfinished, self.archives, pid)

    @property
    def _output(self) -> Path:
        return self.directory.logs / "archive.err"


@contextlib.asynccontextmanager
async def building_class_archive(build: ArchiveBuild, services: Services, delay: float) -> AsyncIterator[None]:
    """Have the archive built in the background. On exit, no build process still runs."""
    task = asyncio.create_task(build.run(delay), name="class archive")
    services.watch(task)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _supervisor(directory: Path) -> AsyncIterator[tuple[ProcessSupervisor, asyncio.Task[None]]]:
    """Run a supervisor for the builder alone, which must not outlive this process as drivers and executors do."""
    supervisor = ProcessSupervisor(directory)
    watching = asyncio.create_task(supervisor.run(), name="supervisor of the archive builder")
    try:
        yield supervisor, watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await supervisor.close()


def _log_failure(reason: str) -> None:
    log.warning("cannot build the class archive: JVMs start without one, more slowly", reason=reason)

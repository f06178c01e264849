"""The job files of a task manager's processes, held in its library cache while the processes run.

A record beside each process lists its files, so that the next task manager process holds them again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.ids import JobId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.daemons.records.bound_files import ARTEFACTS_FILE, read_artefacts, write_artefacts
from emberkeep.daemons.records.standby_messages import Import
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.jobs.archives import WORKER_PYTHON
from emberkeep.jobs.model import Artefact, ArtefactRole, EntryPointKind, JobGraph
from emberkeep.taskmanager.libraries.cache import BoundFile, LibraryCache
from emberkeep.taskmanager.ports import ProcessKey

log = structlog.get_logger(__name__)
ResultT = TypeVar("ResultT")


class ReservedFiles(Protocol):
    """The files of jobs for their reserved standbys, each in the standby's own directory."""

    async def fetch(self, standby: str, directory: Path, graph: JobGraph) -> Import:
        """Fetch a job's files and hold them. Return what the standby is to import. Raises EmberkeepError."""

    def release(self, standby: str, job_id: JobId) -> None:
        """Release the files of a standby that has ended or has become the job's process."""


class StandbyJobFiles:
    """Implements ReservedFiles. It leaves the files in the library cache, where the job's process finds them."""

    def __init__(self, libraries: LibraryCache) -> None:
        self._libraries = libraries

    async def fetch(self, standby: str, directory: Path, graph: JobGraph) -> Import:
        python = graph.spark_conf.get(WORKER_PYTHON, "")
        folder = directory / "job"
        bound = await self._libraries.bind(graph.job_id, standby, graph.artefacts, folder, python=python)
        script = next((file.path for file in bound if file.role is ArtefactRole.SCRIPT), "")
        places = [str(folder), *(file.path for file in bound if file.role is ArtefactRole.PY_FILE)]
        program = graph.entry_point
        is_module = program.kind is EntryPointKind.MODULE
        # The driver uses this folder as well, if the node has it.
        beside = Path(graph.working_directory) if is_module else Path(program.source_path).parent
        if beside.is_absolute():
            places.append(str(beside))
        return Import(script=script, module=program.name if is_module else "", places=tuple(places))

    def release(self, standby: str, job_id: JobId) -> None:
        self._libraries.release(job_id, standby)


class ProcessFiles:
    """Binds files to processes (see ``LibraryCache``) and releases them. Each process has one binding at a time."""

    def __init__(self, places: ProcessPlaces, libraries: LibraryCache, users: JobUsers) -> None:
        self._users = users
        self._places = places
        self._libraries = libraries
        self._steps: dict[str, asyncio.Task[Any]] = {}
        self._unwanted: set[str] = set()  # those of ``_steps`` that were asked to end
        self._rebinding: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def holding(self, key: ProcessKey) -> AsyncIterator[None]:
        """Release the files that are bound to a process if the body, which starts the process, fails."""
        try:
            yield
        except BaseException:
            self.release(key)
            raise

    async def bind(
        self,
        key: ProcessKey,
        artefacts: tuple[Artefact, ...],
        directory: Path,
        python: str,
        user: OsUser | None = None,
    ) -> tuple[BoundFile, ...]:
        """Fetch the files of a process that runs as ``user``; ``cancel`` ends this. Raises Fatal, RetryLater."""
        return await self.while_wanted(key, self._bring(key, artefacts, directory, python, user))

    async def while_wanted(self, key: ProcessKey, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Return the result of a step before the start of a process; ``cancel`` ends it. Raises Fatal then."""
        name = process_name(key)
        step: asyncio.Task[ResultT] = asyncio.create_task(work, name=f"prepare {name}")
        self._steps[name] = step
        try:
            await asyncio.wait({step})
        except asyncio.CancelledError:
            # Wait until the step has ended: otherwise it could release files of the next process with this name.
            step.cancel()
            await asyncio.wait({step})
            raise
        finally:
            del self._steps[name]
            is_unwanted = name in self._unwanted
            self._unwanted.discard(name)
        # A step that had just ended cannot be cancelled any more.
        if step.cancelled() or (is_unwanted and step.exception() is None):
            raise Fatal("the process was asked to end before it was started")
        return step.result()

    def cancel(self, key: ProcessKey) -> None:
        """End ``while_wanted`` for a process that must not be started after all."""
        name = process_name(key)
        step = self._steps.get(name)
        if step is not None:
            self._unwanted.add(name)
            step.cancel()

    def release(self, key: ProcessKey) -> None:
        """Release the files of a process that has ended or could not be started."""
        self._libraries.release(key.job_id, process_name(key))

    def take_back(self, key: ProcessKey, still_runs: Callable[[], bool]) -> None:
        """Begin to hold the files of an adopted process again.

        Adoption does not wait for this: the process has its files already, and holding them only prevents their
        clean-up.
        """
        task = asyncio.create_task(self._take_back(key, still_runs), name=f"files of {process_name(key)}")
        self._rebinding.add(task)
        task.add_done_callback(self._rebinding.discard)

    async def leave(self) -> None:
        """Stop taking files back. Processes keep their files."""
        for task in self._rebinding:
            task.cancel()
        await asyncio.gather(*self._rebinding, return_exceptions=True)

    async def _bring(
        self, key: ProcessKey, artefacts: tuple[Artefact, ...], directory: Path, python: str, user: OsUser | None
    ) -> tuple[BoundFile, ...]:
        try:
            await asyncio.to_thread(self._places.begin, key, user)
            await asyncio.to_thread(write_artefacts, self._places.directory(key) / ARTEFACTS_FILE, artefacts)
        except OSError as error:
            raise Fatal(f"cannot create the process's directory: {error.strerror} ({error.filename})") from error
        return await self._libraries.bind(key.job_id, process_name(key), artefacts, directory, python=python, user=user)

    async def _take_back(self, key: ProcessKey, still_runs: Callable[[], bool]) -> None:
        name = process_name(key)
        try:
            directory = self._places.directory(key)
            artefacts = await asyncio.to_thread(read_artefacts, directory / ARTEFACTS_FILE)
            user = await asyncio.to_thread(self._users.owner_of, directory)
            await self._libraries.take_back(key.job_id, name, artefacts, user)
        except EmberkeepError as error:
            log.warning("cannot hold all files of an adopted process", process=name, reason=str(error))
        if not still_runs():  # it has ended in the meantime
            self.release(key)

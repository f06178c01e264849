"""Starts drivers and executors as processes of their own session: the task manager's Launcher port.

A record beside each process lists the files that it was bound to, so that the next task manager process holds them
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, Leftover, ProcessSupervisor
from emberkeep.adapters.processes.table import variable_of
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.ids import JobId
from emberkeep.daemons.leader_following import is_highly_available
from emberkeep.daemons.records.bound_files import ARTEFACTS_FILE, read_artefacts, write_artefacts
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, DriverSpec, write_spec
from emberkeep.daemons.taskmanager.process_ends import ProcessEnds
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.jobs.interpreter import WORKER_PYTHON
from emberkeep.jobs.model import Artefact, ArtefactRole, AttemptOutcome
from emberkeep.local_state.model import DRIVER
from emberkeep.protocol.messages import StartDriver, StartExecutor
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.class_archive import default_directory, find_class_archive
from emberkeep.spark.jvm.executor_command import ExecutorLaunch, executor_command
from emberkeep.spark.jvm.state_gateway_conf import GATEWAY_VARIABLE
from emberkeep.taskmanager.libraries.cache import BoundFile, LibraryCache
from emberkeep.taskmanager.ports import Adopted, DriverKey, ExecutorKey, ProcessEnvironment, ProcessExit, ProcessKey

log = structlog.get_logger(__name__)
# Not passed on to jobs: these variables configure this process.
_PRIVATE_PREFIX = "EMBERKEEP_"


@dataclass(frozen=True)
class LaunchNode:
    """The node on which the launcher starts processes, and the task manager for which it does."""

    task_manager: str
    host: str
    directory: WorkingDirectory
    token_file: Path
    java: JavaRuntime
    configuration: Configuration


class ProcessLauncher:
    """Implements ``taskmanager.ports.Launcher``."""

    def __init__(
        self,
        node: LaunchNode,
        supervisor: ProcessSupervisor,
        libraries: LibraryCache,
        environment: ProcessEnvironment | None = None,
    ) -> None:
        """``environment`` adds variables to each process; None adds none."""
        self._node = node
        self._places = ProcessPlaces(node.directory)
        self._supervisor = supervisor
        self._libraries = libraries
        self._environment = environment
        self._callback: Callable[[ProcessExit], None] | None = None
        self._running: dict[str, ProcessKey] = {}
        self._binding: dict[str, asyncio.Task[tuple[BoundFile, ...]]] = {}
        self._removals: set[asyncio.Future[None]] = set()
        self._rebinding: set[asyncio.Task[None]] = set()
        self._ends = ProcessEnds(self._places, self._tell)

    def on_exit(self, callback: Callable[[ProcessExit], None]) -> None:
        self._callback = callback

    def is_live(self, job_id: JobId, attempt: int, executor_id: str) -> bool:
        """True if this driver (executor id "") or executor still runs here."""
        return any(
            key.job_id == job_id
            and key.attempt == attempt
            and (key.executor_id if isinstance(key, ExecutorKey) else "") == executor_id
            for key in self._running.values()
        )

    def live_jobs(self) -> frozenset[JobId]:
        """Return the jobs that have a driver or an executor here."""
        return frozenset(key.job_id for key in self._running.values())

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        keys = {process_name(key): key for key in wanted}
        alive: dict[ProcessKey, int] = {}
        endings = []
        for leftover in await self._supervisor.leftovers():
            key = keys.get(leftover.name)
            if key is None or key in alive or leftover.leader is None or not leftover.is_led:
                log.warning("ending a process that belongs to no recorded slot or driver", process=leftover.name)
                endings.append(self._supervisor.end_leftover(leftover, 0.0))
            elif self._has_lost_its_gateway(key, leftover.leader.pid):
                log.warning(
                    "ending an executor whose state gateway has ended or moved: its slot gets another executor",
                    process=leftover.name,
                )
                endings.append(self._supervisor.end_leftover(leftover, 0.0))
            else:
                self._take_over(key, leftover)
                alive[key] = leftover.leader.pid
        await asyncio.gather(*endings)
        drivers = {key for key in wanted if isinstance(key, DriverKey)} - alive.keys()
        outcomes = await asyncio.to_thread(self._outcomes, drivers, ended, everything=jobs is None)
        kept = frozenset(key.job_id for key in outcomes) if jobs is None else jobs
        await asyncio.to_thread(self._places.clean_up, kept, {self._places.directory(key) for key in alive})
        return Adopted(alive=alive, outcomes=outcomes)

    def _outcomes(
        self, gone: AbstractSet[DriverKey], ended: AbstractSet[DriverKey], *, everything: bool
    ) -> dict[DriverKey, AttemptOutcome]:
        """Return an outcome for each driver in ``gone``, and for the others the outcomes that they wrote.

        Blocks. Raises Unavailable, NewerFormat.
        """
        outcomes = self._places.written_outcomes() if everything else {}
        for key in ended:
            written = self._places.written_outcome(key)
            if written is not None:
                outcomes[key] = written
        return {**outcomes, **{key: self._places.outcome(key, None) for key in gone}}

    def _has_lost_its_gateway(self, key: ProcessKey, pid: int) -> bool:
        """True if an executor uses a gateway that this process does not serve, or serves at another address.

        Its tasks would fail forever. A driver has its own gateway.
        """
        used = variable_of(pid, GATEWAY_VARIABLE) if isinstance(key, ExecutorKey) else None
        return used is not None and used != self._own_environment(key).get(GATEWAY_VARIABLE)

    def _take_over(self, key: ProcessKey, leftover: Leftover) -> None:
        name = leftover.name
        self._running[name] = key
        self._supervisor.adopt(leftover, lambda end: self._ended(key, end))
        log.info(
            "adopted a process that the previous task manager process started",
            process=name,
            members=len(leftover.members),
        )
        task = asyncio.create_task(self._take_files_back(key), name=f"files of {name}")
        self._rebinding.add(task)
        task.add_done_callback(self._rebinding.discard)

    async def _take_files_back(self, key: ProcessKey) -> None:
        """Hold the files of an adopted process again.

        Adoption does not wait for this: the process has its files already, and holding them only prevents their
        clean-up.
        """
        name = process_name(key)
        try:
            artefacts = await asyncio.to_thread(read_artefacts, self._places.directory(key) / ARTEFACTS_FILE)
            await self._libraries.take_back(key.job_id, name, artefacts)
        except EmberkeepError as error:
            log.warning("cannot hold all files of an adopted process", process=name, reason=str(error))
        if name not in self._running:  # it has ended in the meantime
            self._libraries.release(key.job_id, name)

    async def leave(self) -> None:
        """End the launcher and leave its processes running."""
        for task in self._rebinding:
            task.cancel()
        await asyncio.gather(*self._rebinding, return_exceptions=True)
        await self._ends.leave()

    async def run(self) -> NoReturn:
        """Supervise how ends are reported, until cancelled; see ``ProcessEnds.run``."""
        await self._ends.run()

    async def start_driver(self, request: StartDriver) -> int:
        key = DriverKey(job_id=request.graph.job_id, attempt=request.attempt)
        directory = self._places.directory(key)
        async with self._holding(key):
            python = request.graph.spark_conf.get(WORKER_PYTHON, "")
            files = await self._bind(key, request.graph.artefacts, directory / "files", python)
            try:
                spec_file = self._prepare_driver(request, directory, files)
            except OSError as error:
                raise Fatal(f"cannot prepare the driver's directory: {error.strerror} ({error.filename})") from error
            return await self._start(
                key,
                [sys.executable, "-P", "-m", "emberkeep.daemons.driver", str(spec_file)],
                {**self._driver_environment(directory), **self._own_environment(key)},
                self._driver_directory(request, directory),
            )

    async def start_executor(self, request: StartExecutor) -> int:
        key = ExecutorKey(
            job_id=request.job_id,
            attempt=request.attempt,
            allocation_id=request.allocation_id,
            executor_id=request.executor_id,
        )
        directory = self._places.directory(key)
        async with self._holding(key):
            files = await self._bind(key, request.artefacts, directory / "work", request.python)
            try:
                launch = self._executor_launch(key, request, directory, files)
                argv, environ = executor_command(launch)
            except OSError as error:
                raise Fatal(f"cannot prepare the executor's directory: {error.strerror} ({error.filename})") from error
            return await self._start(key, argv, environ, launch.work_dir)

    def _own_environment(self, key: ProcessKey) -> dict[str, str]:
        if self._environment is None:
            return {}
        allocation_id = key.allocation_id if isinstance(key, ExecutorKey) else DRIVER
        return self._environment.environ(key.job_id, key.attempt, allocation_id)

    def _executor_launch(
        self, key: ExecutorKey, request: StartExecutor, directory: Path, files: tuple[BoundFile, ...]
    ) -> ExecutorLaunch:
        return ExecutorLaunch(
            driver_url=request.driver_url,
            executor_id=request.executor_id,
            host=self._node.host,
            cores=request.cores,
            heap_mb=request.heap_mb,
            app_id=request.app_id,
            java=self._node.java.executable,
            java_options=request.java_options,
            extra_class_path=request.extra_class_path,
            python=sys.executable,
            environ={**_inherited(), **request.environ, **self._own_environment(key)},
            work_dir=directory / "work",
            local_dir=directory / "local",
            temporary_dir=directory / "tmp",
            auth_secret=request.auth_secret or None,
            python_path=request.python_path,
            jars=tuple(Path(file.path) for file in files if file.role is ArtefactRole.JAR),
            jars_first=request.jars_first,
            class_archive=find_class_archive(self._node.java, default_directory(os.environ), os.environ),
        )

    async def stop(self, key: ProcessKey, grace: float) -> None:
        binding = self._binding.get(process_name(key))
        if binding is not None:
            binding.cancel()
        await self._supervisor.stop(process_name(key), grace)
        await self._ends.told(process_name(key))

    def decommission(self, key: ExecutorKey) -> None:
        self._supervisor.signal(process_name(key), signal.SIGPWR)

    async def kill_all(self) -> None:
        """Send SIGKILL to all processes that still run."""
        await asyncio.gather(*(self._supervisor.stop(name, 0.0) for name in sorted(self._running)))

    async def forget_job(self, job_id: JobId) -> None:
        await asyncio.to_thread(shutil.rmtree, self._node.directory.job(job_id), ignore_errors=True)

    async def _bind(
        self, key: ProcessKey, artefacts: tuple[Artefact, ...], directory: Path, python: str
    ) -> tuple[BoundFile, ...]:
        """Fetch the files of a process; ``stop`` ends this. Raises Fatal, RetryLater."""
        name = process_name(key)
        binding = asyncio.create_task(self._bring(key, artefacts, directory, python), name=f"bind {name}")
        self._binding[name] = binding
        try:
            await asyncio.wait({binding})
        except asyncio.CancelledError:
            # Wait until it has ended: otherwise it could release files of the next process with this name.
            binding.cancel()
            await asyncio.wait({binding})
            raise
        finally:
            del self._binding[name]
        if binding.cancelled():
            raise Fatal("its end was requested before it was started")
        return binding.result()

    async def _bring(
        self, key: ProcessKey, artefacts: tuple[Artefact, ...], directory: Path, python: str
    ) -> tuple[BoundFile, ...]:
        try:
            await asyncio.to_thread(write_artefacts, self._places.directory(key) / ARTEFACTS_FILE, artefacts)
        except OSError as error:
            raise Fatal(f"cannot create the process's directory: {error.strerror} ({error.filename})") from error
        return await self._libraries.bind(key.job_id, process_name(key), artefacts, directory, python=python)

    @contextlib.asynccontextmanager
    async def _holding(self, key: ProcessKey) -> AsyncIterator[None]:
        """Release the files that are bound to a process if its start fails."""
        try:
            yield
        except BaseException:
            self._libraries.release(key.job_id, process_name(key))
            raise

    def _prepare_driver(self, request: StartDriver, directory: Path, files: tuple[BoundFile, ...]) -> Path:
        node, graph = self._node, request.graph
        logs = node.directory.attempt_logs(graph.job_id, request.attempt)
        for path in (directory / "scratch", logs):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / OUTCOME_FILE).unlink(missing_ok=True)
        spec = DriverSpec(
            graph=graph,
            attempt=request.attempt,
            host=node.host,
            task_manager=node.task_manager,
            agent=str(node.directory.agent_record),
            leader=str(node.directory.leader_record) if is_highly_available(node.configuration) else "",
            job_manager=request.job_manager,
            token_file=str(node.token_file),
            checkpoint_root=f"{request.checkpoint_root}/{graph.job_id}",
            directory=str(directory),
            logs=str(logs),
            files=files,
            options=node.configuration.texts(),
            checkpoints_recorded=request.checkpoints_recorded,
            checkpoints=request.checkpoints,
            procedure=request.procedure,
        )
        write_spec(directory / "spec.record", spec)
        return directory / "spec.record"

    def _driver_environment(self, directory: Path) -> dict[str, str]:
        scratch = directory / "scratch"
        return {
            **_inherited(),
            # the hashes of the driver and its workers must agree
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
            "PYTHONUNBUFFERED": "1",  # the script's output appears at once, not when a buffer is full
            "JAVA_HOME": str(self._node.java.home) if self._node.java.home else os.environ.get("JAVA_HOME", ""),
            "SPARK_LOCAL_IP": self._node.host,
            "SPARK_LOCAL_DIRS": str(scratch / "local"),
        }

    @staticmethod
    def _driver_directory(request: StartDriver, directory: Path) -> Path:
        wanted = Path(request.graph.working_directory)
        return wanted if request.graph.working_directory and wanted.is_dir() else directory

    async def _start(self, key: ProcessKey, argv: list[str], environ: dict[str, str], directory: Path) -> int:
        name, log_stem = process_name(key), self._places.log_stem(key)
        log_stem.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        request = StartRequest(
            name=name,
            argv=tuple(argv),
            environ=environ,
            directory=directory,
            stdout=log_stem.with_name(f"{log_stem.name}.stdout"),
            stderr=self._places.stderr(key),
        )
        self._running[name] = key
        try:
            return await self._supervisor.start(request, lambda end: self._ended(key, end))
        except BaseException:
            self._running.pop(name, None)
            raise

    def _ended(self, key: ProcessKey, end: Exit) -> None:
        self._running.pop(end.name, None)
        self._libraries.release(key.job_id, end.name)
        if isinstance(key, ExecutorKey):
            self._remove_later(self._places.directory(key))
        self._ends.begin(key, end)

    def _tell(self, exit_: ProcessExit) -> None:
        assert self._callback is not None, "the task manager sets its callback before it starts a process"  # noqa: S101
        self._callback(exit_)

    def _remove_later(self, directory: Path) -> None:
        """Delete a directory in a thread, because it may have many shuffle files."""
        task = asyncio.get_running_loop().run_in_executor(None, partial(shutil.rmtree, directory, ignore_errors=True))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE_PREFIX)}

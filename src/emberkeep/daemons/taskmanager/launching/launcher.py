"""Starts drivers and executors as processes in sessions of their own. Implements the task manager's port Launcher."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import signal
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NoReturn, TypeVar

import structlog

from emberkeep.adapters.blocking.doubtful_work import DoubtfulWork
from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import KILLED_SECONDS, Exit, Leftover, ProcessSupervisor
from emberkeep.base.errors import Fatal
from emberkeep.base.files.hostile import remove_tree
from emberkeep.base.ids import JobId
from emberkeep.daemons.records.late_variables import VARIABLES_FILE, write_late_variables
from emberkeep.daemons.taskmanager.launching.ends import ProcessEnds, ProcessMemory
from emberkeep.daemons.taskmanager.launching.leftovers import GATEWAY_VARIABLES, HANGING, LeftoverProcesses
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode, ProcessStarts
from emberkeep.daemons.taskmanager.process_files import ProcessFiles, StandbyJobFiles
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.daemons.taskmanager.standby_profiles import driver_profile, executor_profile, followed_job, warmed_state
from emberkeep.daemons.taskmanager.standby_starts import MakeStandby, StandbyNode
from emberkeep.daemons.taskmanager.standby_takes import StandbyDirectories, TakeOver
from emberkeep.daemons.taskmanager.standbys import JobStarts, ReservedJob, Standbys
from emberkeep.jobs.archives import WORKER_PYTHON
from emberkeep.jobs.model import AttemptOutcome, JobGraph
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.messages.task_managers import ReservedStandby, StartDriver
from emberkeep.slots.reserved.choices import RESERVED_STANDBYS
from emberkeep.slots.standbys.events import StandbyProfile
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import (
    Adopted,
    DriverKey,
    ExecutorKey,
    ProcessEnvironment,
    ProcessExit,
    ProcessKey,
    StartedProcess,
)
from emberkeep.taskmanager.state_gateway.standby_copies import FollowedJob

log = structlog.get_logger(__name__)
ResultT = TypeVar("ResultT")

PREPARING_SECONDS = 20.0  # for the directories of one process, usually a moment
_MOST_PREPARED = 16  # at a time
_EXECUTOR_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class ProcessLauncher:
    """Implements ``taskmanager.ports.Launcher``."""

    def __init__(
        self,
        node: LaunchNode,
        supervisor: ProcessSupervisor,
        libraries: LibraryCache,
        environment: ProcessEnvironment | None = None,
        pool: StandbyPool | None = None,
        make_standby: MakeStandby | None = None,
        *,
        follow: Callable[[tuple[FollowedJob, ...]], None] | None = None,
    ) -> None:
        """``environment`` adds variables to each process; None adds none.

        ``share_of``, an attribute, returns the share of a process in the node if its control group is to have one.
        ``pool``: standby processes to keep; None keeps none. ``make_standby``: None makes Spark's.

        ``follow``: copies the state of jobs with reserved standbys, and of no others; None copies none.
        """
        self._root = node.directory
        self._users = node.users
        self._configuration = node.configuration
        self._places = ProcessPlaces(node.directory)
        self._supervisor = supervisor
        self._files = ProcessFiles(self._places, libraries, node.users)
        self._starts = ProcessStarts(node, self._places, environment)
        self._follow = follow
        self._callback: Callable[[ProcessExit], None] | None = None
        self._running: dict[str, ProcessKey] = {}
        self._removals: set[asyncio.Future[None]] = set()
        self._leftovers = LeftoverProcesses(supervisor, self._places, self._starts)
        self._preparing = DoubtfulWork(_MOST_PREPARED, patience=PREPARING_SECONDS)
        self._ends = ProcessEnds(self._places, self._tell)
        self.memory = ProcessMemory(supervisor, self._ends, self._running)
        self.share_of: Callable[[ProcessKey], Share | None] = lambda _key: None
        state = warmed_state(node.configuration)
        make = make_standby or StandbyNode(node.host, node.java, self._starts.standby_environment, state).make
        pool = StandbyPool({}, {}) if pool is None else pool
        self.standbys = Standbys(
            StandbyDirectories(node.directory.standbys), StandbyJobFiles(libraries), make, supervisor, pool
        )
        self._job_starts = JobStarts(self.standbys, supervisor)

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

    def live_processes(self) -> frozenset[str]:
        """Return the names of the drivers and executors that run here."""
        return frozenset(self._running)

    def live_jobs(self) -> frozenset[JobId]:
        """Return the jobs that have a driver or an executor here."""
        return frozenset(key.job_id for key in self._running.values())

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        alive = await self._leftovers.adopt(wanted, self._take_over)
        await asyncio.to_thread(self.standbys.takes.clean_up)
        self.standbys.begin()
        drivers = {key for key in wanted if isinstance(key, DriverKey)} - alive.keys()
        outcomes = await asyncio.to_thread(self._outcomes, drivers, ended, everything=jobs is None)
        kept = frozenset(key.job_id for key in outcomes) if jobs is None else jobs
        await asyncio.to_thread(self._places.clean_up, kept, {self._places.directory(key) for key in alive})
        return Adopted(alive=alive, outcomes=outcomes)

    def _outcomes(
        self, gone: AbstractSet[DriverKey], ended: AbstractSet[DriverKey], *, everything: bool
    ) -> dict[DriverKey, AttemptOutcome]:
        """Return an outcome for each driver in ``gone``, and the outcomes that the drivers in ``ended`` wrote.

        With ``everything``, include every outcome that any driver wrote here. Blocks. Raises Unavailable, NewerFormat.
        """
        outcomes = self._places.written_outcomes() if everything else {}
        for key in ended:
            written = self._places.written_outcome(key)
            if written is not None:
                outcomes[key] = written
        return {**outcomes, **{key: self._places.outcome(key, None) for key in gone}}

    def _take_over(self, key: ProcessKey, leftover: Leftover) -> None:
        name = leftover.name
        self._running[name] = key
        self.standbys.takes.adopted(name, leftover.marker)
        self._supervisor.adopt(leftover, lambda end: self._ended(key, end))
        log.info(
            "adopted a process that the previous task manager process started",
            process=name,
            members=len(leftover.members),
        )
        self._files.take_back(key, lambda: name in self._running)

    async def leave(self) -> None:
        """End the launcher and leave its processes running."""
        self._leftovers.leave()
        await self.standbys.leave()
        await self._files.leave()
        await self._ends.leave()

    async def run(self) -> NoReturn:
        """Wait until cancelled. If the end of a process could not be reported, raise the error that prevented it."""
        await self._ends.run()

    async def start_driver(self, request: StartDriver) -> StartedProcess:
        key = DriverKey(job_id=request.graph.job_id, attempt=request.attempt)
        directory = self._places.directory(key)
        user = self._users.of(request.graph.namespace)
        async with self._files.holding(key):
            python = request.graph.spark_conf.get(WORKER_PYTHON, "")
            files = await self._files.bind(key, request.graph.artefacts, directory / "files", python, user)
            profile = driver_profile(request.graph, os.environ)
            start = await self._prepared(key, lambda: self._starts.driver(key, request, files, user))
            return await self._start(key, start, profile, None)

    async def start_executor(self, request: StartExecutor) -> StartedProcess:
        key = ExecutorKey(
            job_id=request.job_id,
            attempt=request.attempt,
            allocation_id=request.allocation_id,
            executor_id=request.executor_id,
        )
        if not _EXECUTOR_ID.fullmatch(request.executor_id):  # it comes from the job's own code, and is part of a path
            raise Fatal(f"{request.executor_id!r} is not the id of an executor")
        user = self._users.of_claim(request.job_id, request.namespace_claim)
        directory = self._places.directory(key)
        async with self._files.holding(key):
            files = await self._files.bind(key, request.artefacts, directory / "work", request.python, user)
            start, launch = await self._prepared(key, lambda: self._starts.executor(key, request, files, user))
            return await self._start(key, start, executor_profile(launch), launch)

    async def _prepared(self, key: ProcessKey, prepare: Callable[[], ResultT]) -> ResultT:
        """Prepare a start in a thread: jobs name directories on mounts that may not answer. ``stop`` ends this."""
        what = f"directories of {process_name(key)}"
        try:
            return await self._files.while_wanted(key, self._preparing.run(key.job_id, what, prepare))
        except TimeoutError as error:
            raise Fatal(
                f"cannot prepare {process_name(key)}: a file system does not answer",
                hint="see whether the job's working directory and module folders can be read on this node",
            ) from error

    def reserve_standbys(self, reserved: tuple[ReservedStandby, ...]) -> None:
        known, jobs = self.standbys.reserved_jobs, {}
        for each in reserved[:RESERVED_STANDBYS]:
            job = known.get(each.job_id)
            if job is None and each.graph is not None:
                job = ReservedJob(each.graph, self._reserved_profile(each.graph))
            if job is not None:
                jobs[each.job_id] = job
        self.standbys.reserve(jobs)
        if self._follow is not None:
            found = [
                followed_job(jobs[each.job_id].graph, each.checkpoints, self._configuration, self._users)
                for each in reserved
                if each.job_id in jobs
            ]
            self._follow(tuple(job for job in found if job is not None))

    def _reserved_profile(self, graph: JobGraph) -> StandbyProfile | str:
        try:
            if self._users.of(graph.namespace) is not None:
                return "the job runs as another user"
        except Fatal as error:
            return error.message
        return driver_profile(graph, os.environ)

    async def stop(self, key: ProcessKey, grace: float) -> None:
        self._files.cancel(key)
        await self._job_starts.stop(process_name(key), grace)
        await self._ends.told(process_name(key))

    def decommission(self, key: ExecutorKey) -> None:
        self._supervisor.signal(process_name(key), signal.SIGPWR)

    async def kill_all(self) -> None:
        """Send SIGKILL to all processes that are still running. Wait for their end, but not for ever."""
        try:
            async with asyncio.timeout(KILLED_SECONDS):
                await asyncio.gather(*(self._supervisor.stop(name, 0.0) for name in sorted(self._running)))
        except TimeoutError:
            log.error("killed processes do not end; leaving them", processes=sorted(self._running), hint=HANGING)

    async def forget_job(self, job_id: JobId) -> None:
        await asyncio.to_thread(remove_tree, self._root.job(job_id))

    async def _start(
        self, key: ProcessKey, request: StartRequest, profile: StandbyProfile | str, launch: ExecutorLaunch | None
    ) -> StartedProcess:
        """Turn a standby process with this profile into the wanted process, or start a new process.

        ``profile``: the profile, or a text that says why no standby process can serve.
        """
        late = {name: value for name, value in request.environ.items() if name in GATEWAY_VARIABLES}
        record = self._places.directory(key) / VARIABLES_FILE

        def unrecord() -> None:
            with contextlib.suppress(OSError):  # it has the values with which a cold process starts
                record.unlink(missing_ok=True)

        request = dataclasses.replace(request, share=self.share_of(key))
        wanted = TakeOver(
            request,
            launch,
            lambda end: self._ended(key, end),
            lambda: write_late_variables(record, late),
            unrecord,
            key.job_id,
        )
        self._running[request.name] = key
        try:
            return await self._job_starts.start(wanted, profile)
        except BaseException:
            self._running.pop(request.name, None)
            raise

    def _ended(self, key: ProcessKey, end: Exit) -> None:
        self._running.pop(end.name, None)
        self.memory.ended(key, end)
        self.standbys.takes.ended(end.name)
        self._files.release(key)
        if isinstance(key, ExecutorKey):
            self._remove_later(self._places.directory(key))
        self._ends.begin(key, end)

    def _tell(self, exit_: ProcessExit) -> None:
        assert self._callback is not None, "the task manager sets its callback before it starts a process"  # noqa: S101
        self._callback(exit_)

    def _remove_later(self, directory: Path) -> None:
        """Delete a directory in a thread, because it may have many shuffle files."""
        task = asyncio.get_running_loop().run_in_executor(None, remove_tree, directory)
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

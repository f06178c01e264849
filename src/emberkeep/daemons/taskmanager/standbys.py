"""The standby processes of a task manager: warm drivers and executors that no job has taken yet.

``StandbyPool`` decides which ones to keep. This module starts, warms and ends them, and gives one to a job when the
launcher would otherwise start that process. ``StandbyTakes`` turns it into the job's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import structlog

from emberkeep.adapters.processes.supervisor import KILLED_SECONDS, Exit
from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.daemons.records.standby_messages import Import
from emberkeep.daemons.taskmanager.process_files import ReservedFiles
from emberkeep.daemons.taskmanager.standby_starts import MakeStandby, StandbyProcess
from emberkeep.daemons.taskmanager.standby_takes import EndableTakes, StandbyFiles, StandbyTakes, Supervisor, TakeOver
from emberkeep.jobs.model import JobGraph
from emberkeep.protocol.messages.task_manager_reports import ReservedStandbyReport, StandbyReport
from emberkeep.slots.model import ProcessStart
from emberkeep.slots.standbys.events import (
    Asked,
    EndStandby,
    Look,
    Prepared,
    PrepareStandby,
    Reserve,
    StandbyEffect,
    StandbyEnded,
    StandbyEvent,
    StandbyKind,
    StandbyProfile,
    StandbyTaken,
    StartStandby,
    TakeEnded,
    Warmed,
)
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.spark.errors import StandbyFailed
from emberkeep.taskmanager.ports import StartedProcess

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
STARTING_SECONDS = 15.0  # for which a process of a job counts as starting
WARMING_SECONDS = 1200.0  # for a whole warm-up at idle priority, after which the process counts as hanging
_PREFIX = "standby-"


@dataclass(frozen=True)
class ReservedJob:
    """A job that has a reserved standby. ``profile``: of its driver, or why no standby can serve the job."""

    graph: JobGraph
    profile: StandbyProfile | str


@dataclass(eq=False)
class _Kept:
    """A process of the pool, in ``Standbys`` until it has ended. ``name``: of the process and of its directory.

    - ``process``: None until it is made.
    - ``warming``: the task that starts and warms it, or prepares it for its job.
    - ``job_id``: the job that it was prepared for.
    - ``is_unwanted``: the pool ends it, or the task manager does. It must no longer be started.
    """

    standby_id: str
    name: str
    profile: StandbyProfile
    process: StandbyProcess | None = None
    warming: asyncio.Task[None] | None = None
    job_id: JobId | None = None
    is_ready: bool = False
    is_unwanted: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Standbys:
    """Owns the standby processes of one task manager. Belongs to the task manager's event loop.

    - ``files``: the processes' own directories.
    - ``job_files``: the files of jobs for their reserved standbys.
    - ``free_mb``: returns the memory in MiB that slots and drivers leave free.
    """

    def __init__(
        self,
        files: StandbyFiles,
        job_files: ReservedFiles,
        make: MakeStandby,
        supervisor: Supervisor,
        pool: StandbyPool,
    ) -> None:
        self._files = files
        self._job_files = job_files
        self._reserved: Mapping[JobId, ReservedJob] = {}
        self._make = make
        self._supervisor = supervisor
        self.pool = pool
        self._kept: dict[str, _Kept] = {}  # by the pool's ids
        self._killing: set[asyncio.Task[None]] = set()
        self._last_start = -STARTING_SECONDS
        self._is_leaving = False
        self._begun = asyncio.Event()
        self._failure: asyncio.Future[NoReturn] | None = None
        self.takes = StandbyTakes(files, supervisor)
        self.free_mb: Callable[[], int] = lambda: 0

    # --- for the launcher ---------------------------------------------------------------------------------------------

    def job_starts(self) -> None:
        """Note that a process of a job starts now, so that no standby is warmed at the same time."""
        self._last_start = self._now()
        self._handle(Look(self.free_mb(), is_busy=True))

    @property
    def reserved_jobs(self) -> Mapping[JobId, ReservedJob]:
        """The jobs that have a reserved standby here."""
        return self._reserved

    def reserve(self, jobs: Mapping[JobId, ReservedJob]) -> None:
        """Keep a standby driver for each of these jobs, and for no others."""
        if jobs != self._reserved:
            self._reserved = jobs
            profiles = {key: job.profile for key, job in jobs.items() if isinstance(job.profile, StandbyProfile)}
            self._handle(Reserve(profiles))

    async def take(self, profile: StandbyProfile, wanted: TakeOver) -> int | str:
        """Turn a standby process into the wanted one. Return its pid, or why none was taken; "" if none are kept.

        If no process was taken, or this is cancelled, it was killed: see ``StandbyTakes.turn``.
        """
        kept = self._fitting(profile, wanted)
        if isinstance(kept, str):
            return kept
        del self._kept[kept.standby_id]
        self._handle(StandbyTaken(kept.standby_id))
        self._handle(Asked(profile))
        assert kept.process is not None, "a process that is ready was made"  # noqa: S101
        try:
            taken = await self.takes.turn(kept.name, kept.process, wanted)
        finally:
            self._release(kept)
        self._handle(TakeEnded(profile, failed=isinstance(taken, str), job_id=kept.job_id))
        return taken

    def _fitting(self, profile: StandbyProfile, wanted: TakeOver) -> _Kept | str:
        """Return a process that can become the wanted one, or the reason why none can."""
        if self._is_leaving:
            return "the task manager is ending"
        reason = wanted.why_unfit()
        if reason:
            return reason
        standby_id = self.pool.ready(profile, wanted.job_id)
        if standby_id is None:
            reason = self.pool.why_none(profile, wanted.job_id)
            self._handle(Asked(profile))
            return reason
        kept = self._kept[standby_id]
        assert kept.process is not None, "a process that is ready was made"  # noqa: S101
        reason = kept.process.why_unfit(wanted.request, wanted.launch)
        if reason:
            self._handle(Asked(profile, fits=False))
        return reason or kept

    def begin(self) -> None:
        """Let ``run`` start standby processes."""
        self._begun.set()

    async def leave(self) -> None:
        """End all standby processes that no job has taken, and start no others. Wait for that, but not for ever."""
        self._is_leaving = True
        await self.takes.raise_compilers(at_once=True)
        kept = list(self._kept.values())
        try:
            async with asyncio.timeout(KILLED_SECONDS):
                await asyncio.gather(*(self._end(each) for each in kept))
                warming = [each.warming for each in kept if each.warming]
                await asyncio.gather(*warming, *self._killing, return_exceptions=True)
        except TimeoutError:
            log.error("killed standby processes do not end; leaving them", processes=sorted(each.name for each in kept))

    # --- the pool -----------------------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Keep the pool until cancelled. Raises any mistake."""
        await self._begun.wait()
        self._failure = asyncio.get_running_loop().create_future()
        try:
            while True:
                is_busy = self._now() < self._last_start + STARTING_SECONDS
                self._handle(Look(self.free_mb(), is_busy))
                await self.takes.raise_compilers()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await asyncio.shield(self._failure)
        finally:
            self._failure = None

    def report(self) -> StandbyReport | None:
        """Return what any job can take; None if no standby processes are kept."""
        drivers, executors = (self.pool.size(kind) for kind in (StandbyKind.DRIVER, StandbyKind.EXECUTOR))
        if not drivers and not executors:
            return None
        ready = self.pool.count_ready()
        return StandbyReport(
            drivers=ready[StandbyKind.DRIVER],
            drivers_kept=drivers,
            executors=ready[StandbyKind.EXECUTOR],
            executors_kept=executors,
        )

    def report_reserved(self) -> tuple[ReservedStandbyReport, ...]:
        """Return the jobs that have a reserved standby here, and why it is not ready if it is not."""
        kept, found = self.pool.reserved(), []
        for job_id, job in self._reserved.items():
            no_profile = job.profile if isinstance(job.profile, str) else ""
            why_not = no_profile or kept.get(job_id, "no standby drivers are kept here")
            found.append(ReservedStandbyReport(job_id=job_id, why_not=why_not))
        return tuple(found)

    def _handle(self, event: StandbyEvent) -> None:
        if self._is_leaving:
            return
        for effect in self.pool.handle(event, self._now()):
            self._carry_out(effect)

    def _carry_out(self, effect: StandbyEffect) -> None:
        match effect:
            case StartStandby():
                self._start(effect.standby_id, effect.profile)
            case PrepareStandby():
                self._prepare(effect)
            case EndStandby():
                log.info("ending a standby process", standby=effect.standby_id, reason=effect.reason)
                self._end_soon(self._kept[effect.standby_id])

    def _end_soon(self, kept: _Kept) -> None:
        task = asyncio.create_task(self._end(kept), name=f"end {kept.standby_id}")
        self._killing.add(task)
        task.add_done_callback(self._killing.discard)
        task.add_done_callback(self._mistakes)

    def _start(self, standby_id: str, profile: StandbyProfile) -> None:
        name = f"{_PREFIX}{standby_id}-{secrets.token_hex(4)}"
        kept = self._kept[standby_id] = _Kept(standby_id, name, profile)
        kept.warming = asyncio.create_task(self._warm(kept), name=f"warm {name}")
        kept.warming.add_done_callback(self._mistakes)

    def _prepare(self, effect: PrepareStandby) -> None:
        kept = self._kept[effect.standby_id]
        kept.job_id = effect.job_id
        work = self._bring_in(kept, self._reserved[effect.job_id].graph, imports=effect.imports)
        kept.warming = asyncio.create_task(work, name=f"prepare {kept.name}")
        kept.warming.add_done_callback(self._mistakes)

    async def _bring_in(self, kept: _Kept, graph: JobGraph, *, imports: bool) -> None:
        """Fetch a job's files for its reserved standby, and let that import what the job needs.

        Cancelled if the process ends.
        """
        assert kept.process is not None, "a process that is ready was made"  # noqa: S101
        order: Import | None = None
        try:
            order = await self._job_files.fetch(kept.name, self._files.directory(kept.name), graph)
        except EmberkeepError as error:
            log.warning("cannot fetch a job's files for its reserved standby", job=graph.job_id, reason=str(error))
        try:
            if imports and order is not None:
                await kept.process.prepare(order)
        except EmberkeepError as error:
            log.warning("a reserved standby failed while it imported", job=graph.job_id, reason=str(error))
            self._end_soon(kept)  # whatever it has imported must not become the job's
            return
        log.info("a reserved standby is ready", standby=kept.standby_id, job=graph.job_id)
        self._handle(Prepared(kept.standby_id))

    def _release(self, kept: _Kept) -> None:
        """Release the files that are held for a reserved standby."""
        if kept.job_id is not None:
            self._job_files.release(kept.name, kept.job_id)

    async def _end(self, kept: _Kept) -> None:
        kept.is_unwanted = True
        with contextlib.suppress(RetryLater):  # killed, but the supervisor has ended and does not confirm it
            await self._supervisor.stop(kept.name, 0.0)

    async def _warm(self, kept: _Kept) -> None:
        began = self._now()
        try:
            pid = await self._bring_up(kept)
        except (EmberkeepError, OSError) as error:
            if not kept.is_unwanted:
                log.warning("a standby process could not be warmed", standby=kept.standby_id, reason=str(error))
            await self._end(kept)
            self._gone(kept, str(error))
            return
        except BaseException:
            if kept.process is not None:
                kept.process.close()
            raise
        log.info("a standby process is ready", standby=kept.standby_id, pid=pid, seconds=round(self._now() - began, 1))
        kept.is_ready = True
        self._handle(Warmed(kept.standby_id))

    async def _bring_up(self, kept: _Kept) -> int:
        """Start and warm the process. Return its pid."""
        await self._files.make(kept.name)
        kept.process = process = self._make(kept.name, self._files.directory(kept.name), kept.profile)
        request = process.start_request()
        if kept.is_unwanted:
            raise StandbyFailed("it was no longer needed")
        pid = await self._supervisor.start(request, lambda end: self._process_ended(kept, end))
        warming, ending = asyncio.create_task(process.warmed(pid)), asyncio.create_task(kept.ended.wait())
        try:
            await asyncio.wait({warming, ending}, timeout=WARMING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (warming, ending):
                task.cancel()
            await asyncio.wait({warming, ending})
        if warming.cancelled():
            how = "ended during its warm-up" if kept.ended.is_set() else f"not become ready in {WARMING_SECONDS:.0f} s"
            raise StandbyFailed(f"it has {how}", hint=f"see {request.stderr}")
        warming.result()
        if kept.ended.is_set():
            raise StandbyFailed("it has ended after its warm-up")
        return pid

    def _process_ended(self, kept: _Kept, end: Exit) -> None:
        del end
        kept.ended.set()
        if kept.is_ready and kept.warming is not None:
            kept.warming.cancel()  # what was to be done before a job takes it
        if kept.is_ready and self._kept.get(kept.standby_id) is kept:  # no job has taken it
            self._gone(kept, "it has ended")

    def _gone(self, kept: _Kept, reason: str) -> None:
        del self._kept[kept.standby_id]
        if kept.process is not None:
            kept.process.close()
        self._release(kept)
        self._files.remove_later(kept.name)
        self._handle(StandbyEnded(kept.standby_id, reason))

    def _mistakes(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class JobStarts:
    """Starts processes of jobs: from a standby process if one fits, else cold."""

    def __init__(self, standbys: Standbys, supervisor: Supervisor) -> None:
        self._standbys = standbys
        self._supervisor = supervisor
        self._takes = EndableTakes()

    async def start(self, wanted: TakeOver, profile: StandbyProfile | str) -> StartedProcess:
        """Turn a standby process with this profile into the wanted one, or start that.

        ``profile``: the reason if no standby process can serve. Raises what the supervisor raises, Fatal if ``stop`` is
        called, and Conflict if a standby process was killed and does not end. If this raises or is cancelled, the
        process was killed, and has usually ended.
        """
        request = wanted.request
        self._standbys.job_starts()
        taken: int | str = profile if isinstance(profile, str) else await self._take(wanted, profile)
        if isinstance(taken, int):
            return StartedProcess(pid=taken, start=ProcessStart.HOT)
        if taken:
            log.info("starting a cold process", process=request.name, reason=taken)
        pid = await self._supervisor.start(request, wanted.on_exit)
        return StartedProcess(pid=pid, start=ProcessStart.COLD, why_cold=taken)

    async def _take(self, wanted: TakeOver, profile: StandbyProfile) -> int | str:
        """Return the pid of the standby process that was taken, or why none was."""
        taken: int | str = ""
        try:
            async with self._takes.of(wanted.request.name):
                taken = await self._standbys.take(profile, wanted)
        finally:
            if isinstance(taken, str):
                wanted.unrecord()
        return taken

    async def stop(self, name: str, grace: float) -> None:
        """End a process as the supervisor does, also one that is just being taken from the standby processes."""
        await self._takes.end(name)
        await self._supervisor.stop(name, grace)

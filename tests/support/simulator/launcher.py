"""The Launcher port on a simulated machine: starts scripted driver and executor processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.daemons.taskmanager.process_places import process_name
from emberkeep.daemons.taskmanager.standby_starts import StandbyDriver, StandbyPlace, StandbyProcess
from emberkeep.daemons.taskmanager.standby_takes import TakeOver
from emberkeep.daemons.taskmanager.standbys import JobStarts, ReservedJob, Standbys
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.messages.task_managers import ReservedStandby, StartDriver
from emberkeep.slots.model import ProcessStart
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.taskmanager.ports import Adopted, DriverKey, ExecutorKey, ProcessExit, ProcessKey, StartedProcess
from tests.support.simulator.machines import Machine, Machines, Process
from tests.support.simulator.scripts import DriverWork, ExecutorWork, SimSpark, Truth, script_of
from tests.support.simulator.standbys import DEFAULTS, SimJobFiles, SimLink, SimStandbyFiles, StandbyRoom
from tests.support.simulator.supervisor import Program, SimSupervisor
from tests.support.simulator.virtual_loop import seeded_random, seeded_system

DRIVER_PORTS = 30_000  # base of drivers' ports; the pid is added
HANGS = 0.1  # probability that a decommissioned executor does not end


@dataclass
class LaunchRoom:
    """Data that all launchers of a simulation share."""

    machines: Machines
    configuration: Configuration
    truth: Truth
    sparks: dict[str, SimSpark]
    seed: str
    clinging_executors: bool  # executors do not notice the end of their driver
    slow_starts: float  # probability that preparing a driver takes long
    slow_ends: float  # probability that a process takes seconds to end
    standbys: StandbyRoom
    drivers: dict[int, DriverWork] = field(default_factory=dict)  # by pid, including dead ones
    on_kill: list[Callable[[Process], None]] = field(default_factory=list)  # called before a kill


class SimLauncher:
    """Implements Launcher for one task manager process.

    Whether a process of a job is started or taken from the standby processes is decided by ``standbys`` and
    ``JobStarts``, as in a real task manager.
    """

    def __init__(self, room: LaunchRoom, machine: Machine, agent: Process, rng: random.Random) -> None:
        self._room = room
        self._machine = machine
        self._agent = agent
        self._rng = rng
        self._processes: dict[ProcessKey, Process] = {}  # that have begun, also if they have ended
        self._told: Callable[[ProcessExit], None] | None = None
        self._tries: dict[DriverKey, int] = {}
        self._starting: set[ProcessKey] = set()
        self._stopped: set[ProcessKey] = set()  # that were asked to end
        self._over: set[ProcessKey] = set()  # that were asked to end while they were started, and must not begin
        self._supervisor = SimSupervisor(room.machines, machine, agent, rng, room.slow_ends)
        self._supervisor.on_kill.append(self._killing)
        disk_rng = seeded_random(room.seed, f"{agent.name}#{agent.pid}/standbys' disk")
        disk = SimStandbyFiles(room.standbys.disk(machine), room.standbys.wanted, disk_rng)
        sizes = room.standbys.sizes
        self.pool = StandbyPool(sizes, DEFAULTS if any(sizes.values()) else {}, room.standbys.slots)
        self.job_files = SimJobFiles(seeded_random(room.seed, f"{agent.name}#{agent.pid}/standbys' files"))
        self.standbys = Standbys(disk, self.job_files, self._make_standby, self._supervisor, self.pool)
        self._starts = JobStarts(self.standbys, self._supervisor)

    def _make_standby(self, name: str, directory: Path, profile: StandbyProfile) -> StandbyProcess:
        """Implements MakeStandby. Executors' JVMs are reached like drivers here."""
        link, programs = SimLink(), self._supervisor.programs
        programs[name] = self._room.standbys.program(profile, link, self._agent, programs, name)
        place = StandbyPlace(name, directory, self._machine.host, None, {})  # type: ignore[arg-type]  # there is no JVM
        return StandbyDriver(place, profile, link)

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        alive: dict[ProcessKey, int] = {}
        for process in list(self._room.machines.alive(self._machine)):
            if process.owner != self._agent.name:
                continue
            key = process.claim
            if key is not None and key in wanted and key not in alive:
                self._take_over(key, process)
                alive[key] = process.pid
            else:
                self._supervisor.kill(process)
        self.standbys.takes.clean_up()
        self.standbys.begin()
        outcomes = {}
        for work in self._room.drivers.values():
            key, outcome = work.process.key, work.process.outcome
            if not isinstance(key, DriverKey) or key in alive or outcome is None:
                continue
            if work.process.owner != self._agent.name:
                continue
            if key in wanted or key in ended or jobs is None:
                outcomes[key] = outcome
        return Adopted(alive=alive, outcomes=outcomes)

    def _take_over(self, key: ProcessKey, process: Process) -> None:
        name = process_name(key)
        self._processes[key] = process
        if process.origin:
            self.standbys.takes.adopted(name, f"{process.origin}@1")
        self._supervisor.adopt(name, process, partial(self._exited, key))
        what = "driver" if isinstance(key, DriverKey) else "executor"
        self._room.machines.history.count(f"{what} adopted")

    def on_exit(self, callback: Callable[[ProcessExit], None]) -> None:
        self._told = callback

    async def start_driver(self, request: StartDriver) -> StartedProcess:
        key = DriverKey(job_id=request.graph.job_id, attempt=request.attempt)
        await asyncio.sleep(self._preparation())
        self._set_up(key, request)
        room = self._room

        def begin(process: Process) -> None:
            self._begun(key, process)
            work = DriverWork(
                process=process,
                request=request,
                machines=room.machines,
                configuration=room.configuration.with_texts(request.graph.options, "job"),
                system=seeded_system(self._machine.clock, room.seed, f"{process.name}#{process.pid}"),
                truth=room.truth,
                address=f"{self._machine.host}:{DRIVER_PORTS + process.pid}",
                sparks=room.sparks,
                slow_ends=room.slow_ends,
            )
            room.drivers[process.pid] = work
            process.party.scope.spawn(work.run(), "main")

        profile = StandbyProfile(StandbyKind.DRIVER, request.graph.resources.driver_memory_mb)
        return await self._start(Program(f"driver {request.graph.name}.{request.attempt}", key, begin), profile)

    def _preparation(self) -> float:
        slow = self._room.slow_starts and self._rng.random() < self._room.slow_starts
        return self._rng.uniform(3.0, 25.0) if slow else self._rng.uniform(0.02, 0.5)

    def _set_up(self, key: DriverKey, request: StartDriver) -> None:
        script = script_of(request.graph.arguments)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if script.setup == "fatal":
            self._room.truth.setup_failures[key.job_id, key.attempt] = "script.py is missing"
            raise Fatal("script.py is missing", hint="submit it again")
        if script.setup == "retry" and tries == 1:
            raise RetryLater("the artefacts cannot be fetched just now")

    async def start_executor(self, request: StartExecutor) -> StartedProcess:
        await asyncio.sleep(self._rng.uniform(0.005, 0.05))
        key = ExecutorKey(
            job_id=request.job_id,
            attempt=request.attempt,
            allocation_id=request.allocation_id,
            executor_id=request.executor_id,
        )

        def begin(process: Process) -> None:
            self._begun(key, process)
            work = ExecutorWork(
                process=process,
                driver_url=request.driver_url,
                bad="SIM_BAD" in request.environ,
                clings=self._room.clinging_executors,
                machines=self._room.machines,
                sparks=self._room.sparks,
                rng=seeded_random(self._room.seed, f"{process.name}#{process.pid}"),
            )
            process.party.scope.spawn(work.run(), "main")

        shown = f"executor {request.job_id[:4]}.{request.attempt}.{request.executor_id}"
        gpus = tuple(address for each in request.addresses for address in each.addresses)
        return await self._start(
            Program(shown, key, begin, gpus), StandbyProfile(StandbyKind.EXECUTOR, request.heap_mb)
        )

    async def _start(self, program: Program, profile: StandbyProfile) -> StartedProcess:
        """Start a process of a job or take a standby process. No failure of a standby process may fail this (r)."""
        key, history = program.key, self._room.machines.history
        assert key is not None
        name = process_name(key)
        self._supervisor.programs[name] = program
        request = StartRequest(name, (name,), {}, Path("/"), Path("/stdout"), Path("/stderr"))
        keeps = any(self._room.standbys.sizes.values())
        wanted = TakeOver(request, None, partial(self._exited, key), job_id=key.job_id)
        self._starting.add(key)
        try:
            started = await self._starts.start(wanted, profile if keeps else "it is simulated")
        except BaseException as error:
            left = [each.name for each in self._room.machines.alive(self._machine) if each.claim == key]
            if left:
                history.violate("r", f"the start of {program.shown} is over, and {left[0]} lives")
            if isinstance(error, EmberkeepError) and key not in self._stopped:
                history.violate("r", f"{program.shown} does not start: {error}")
            raise
        finally:
            self._starting.remove(key)
        what = "driver" if isinstance(key, DriverKey) else "executor"
        if keeps:
            history.judged("r", key.job_id)
        if started.start is ProcessStart.HOT:
            history.judged("q", key.job_id)
            history.count(f"{what} started hot")
        elif "failed while it was taken" in started.why_cold:
            history.count(f"{what} started cold after a failed take")
        return started

    def _begun(self, key: ProcessKey, process: Process) -> None:
        if key in self._processes:
            self._room.machines.history.violate("bug", f"{self._agent.name} starts {process.name} twice")
        if key in self._over:
            self._room.machines.history.violate("r", f"{process.name} begins, and was asked to end before")
        self._processes[key] = process

    def _exited(self, key: ProcessKey, end: Exit) -> None:
        self.standbys.takes.ended(end.name)
        process = self._processes.get(key)  # None: it was taken, and had not begun
        outcome, shown = (None, end.name) if process is None else (process.outcome, process.name)
        detail = "" if end.exit_code == 0 else f"{shown} ended with {end.exit_code}"
        exit_ = ProcessExit(key=key, exit_code=end.exit_code, outcome=outcome, detail=detail)
        if self._told is not None:
            self._told(exit_)

    def reserve_standbys(self, reserved: tuple[ReservedStandby, ...]) -> None:
        known, jobs = self.standbys.reserved_jobs, {}
        for each in reserved:
            graph = each.graph
            if each.job_id in known:
                jobs[each.job_id] = known[each.job_id]
            elif graph is not None:
                profile = StandbyProfile(StandbyKind.DRIVER, graph.resources.driver_memory_mb)
                jobs[each.job_id] = ReservedJob(graph, profile)
        self.standbys.reserve(jobs)

    async def stop(self, key: ProcessKey, grace: float) -> None:
        self._stopped.add(key)
        is_starting = key in self._starting
        await self._starts.stop(process_name(key), grace)
        if is_starting:
            self._over.add(key)

    def decommission(self, key: ExecutorKey) -> None:
        """Let an executor hand over its blocks and end, or hang with probability HANGS."""
        process = self._supervisor.process(process_name(key))
        if process is None or not process.alive:
            return
        self._room.machines.history.count("executor decommissioned")
        if self._rng.random() < HANGS:
            return
        loop, context = self._room.machines.loop, process.party.scope.context
        loop.call_later(self._rng.uniform(1.0, 5.0), self._room.machines.exit, process, 0, context=context)

    def _killing(self, process: Process) -> None:
        for told in self._room.on_kill:
            told(process)

    async def forget_job(self, job_id: JobId) -> None:
        left = [p.name for key, p in self._processes.items() if key.job_id == job_id and p.alive]
        if left:
            self._room.machines.history.violate("b", f"{self._agent.name} forgets job {job_id} with {left} alive")
        for key in [key for key in self._processes if key.job_id == job_id]:
            del self._processes[key]

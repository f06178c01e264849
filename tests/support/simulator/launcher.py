"""The Launcher port on a simulated machine: starts scripted driver and executor processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.protocol.messages import StartDriver, StartExecutor
from emberkeep.slots.model import ProcessStart
from emberkeep.taskmanager.ports import Adopted, DriverKey, ExecutorKey, ProcessExit, ProcessKey, StartedProcess
from tests.support.simulator.machines import Machine, Machines, Process
from tests.support.simulator.scripts import DriverWork, ExecutorWork, SimSpark, Truth, script_of
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
    drivers: dict[int, DriverWork] = field(default_factory=dict)  # by pid, including dead ones
    on_kill: list[Callable[[Process], None]] = field(default_factory=list)  # called before a kill


class SimLauncher:
    """Implements Launcher for one task manager process."""

    def __init__(self, room: LaunchRoom, machine: Machine, agent: Process, rng: random.Random) -> None:
        self._room = room
        self._machine = machine
        self._agent = agent
        self._rng = rng
        self._processes: dict[ProcessKey, Process] = {}
        self._told: Callable[[ProcessExit], None] | None = None
        self._tries: dict[DriverKey, int] = {}
        self._adopted: set[int] = set()  # pids

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        alive: dict[ProcessKey, int] = {}
        for process in list(self._room.machines.alive(self._machine)):
            if process.key is None or process.owner != self._agent.name:
                continue
            if process.key in wanted:
                self._processes[process.key] = process
                self._adopted.add(process.pid)
                process.on_exit.append(self._exited)
                alive[process.key] = process.pid
                what = "driver" if isinstance(process.key, DriverKey) else "executor"
                self._room.machines.history.count(f"{what} adopted")
            else:
                self._kill(process)
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

    def on_exit(self, callback: Callable[[ProcessExit], None]) -> None:
        self._told = callback

    async def start_driver(self, request: StartDriver) -> StartedProcess:
        key = DriverKey(job_id=request.graph.job_id, attempt=request.attempt)
        await asyncio.sleep(self._preparation())
        self._set_up(key, request)
        process = self._start(key, f"driver {request.graph.name}.{request.attempt}")
        room = self._room
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
        return StartedProcess(pid=process.pid, start=ProcessStart.COLD, why_cold="it is simulated")

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
        process = self._start(key, f"executor {request.job_id[:4]}.{request.attempt}.{request.executor_id}")
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
        return StartedProcess(pid=process.pid, start=ProcessStart.COLD, why_cold="it is simulated")

    def _start(self, key: DriverKey | ExecutorKey, name: str) -> Process:
        known = self._processes.get(key)
        if known is not None:
            self._room.machines.history.violate("bug", f"{self._agent.name} starts {name} twice")
        process = self._room.machines.start(self._machine, name, key=key, owner=self._agent.name)
        self._processes[key] = process
        process.on_exit.append(self._exited)
        return process

    def _exited(self, process: Process) -> None:
        assert process.key is not None
        code = None if process.pid in self._adopted else process.exit_code or 0
        detail = "" if code == 0 else f"{process.name} ended with {code}"
        exit_ = ProcessExit(key=process.key, exit_code=code, outcome=process.outcome, detail=detail)
        self._agent.party.scope.call_soon(self._tell, exit_)

    def _tell(self, exit_: ProcessExit) -> None:
        if self._told is not None:
            self._told(exit_)

    async def stop(self, key: ProcessKey, grace: float) -> None:
        process = self._processes.get(key)
        if process is None or not process.alive:
            return
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process.on_exit.append(lambda _: None if gone.done() else gone.set_result(None))
        if grace > 0:
            for told in self._room.on_kill:
                told(process)
            process.term.set()
            done, _ = await asyncio.wait({gone}, timeout=grace)
            if done:
                return
        # A killed process may take some time to end, and holds its resources until then.
        await asyncio.sleep(self._rng.choice((0.002, self._rng.uniform(0.01, 1.0))))
        if self._room.slow_ends and self._rng.random() < self._room.slow_ends:
            await asyncio.sleep(self._rng.uniform(1.0, 12.0))
        self._kill(process)

    def decommission(self, key: ExecutorKey) -> None:
        """Let an executor hand over its blocks and end, or hang with probability HANGS."""
        process = self._processes.get(key)
        if process is None or not process.alive:
            return
        self._room.machines.history.count("executor decommissioned")
        if self._rng.random() < HANGS:
            return
        loop, context = self._room.machines.loop, process.party.scope.context
        loop.call_later(self._rng.uniform(1.0, 5.0), self._room.machines.exit, process, 0, context=context)

    def _kill(self, process: Process) -> None:
        if process.alive:
            for told in self._room.on_kill:
                told(process)
        self._room.machines.kill(process)

    async def forget_job(self, job_id: JobId) -> None:
        left = [p.name for key, p in self._processes.items() if key.job_id == job_id and p.alive]
        if left:
            self._room.machines.history.violate("bug", f"{self._agent.name} forgets job {job_id} with {left} alive")
        for key in [key for key in self._processes if key.job_id == job_id]:
            del self._processes[key]

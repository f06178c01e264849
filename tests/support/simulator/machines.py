"""Simulated machines and the processes on them: the independent census that the properties are checked against.

A process here is what an operating system knows: a pid, whether the process is alive, who waits for its end. The tasks
in its scope are its work. What other simulated processes believe about it does not matter here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from emberkeep.jobs.model import AttemptOutcome
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.support.simulator.history import History
from tests.support.simulator.network import Party, SimNetwork
from tests.support.simulator.virtual_loop import ScopeState, VirtualClock, VirtualLoop

SIGKILL_CODE = -9


@dataclass(eq=False)
class Process:
    """A process.

    Drivers and executors have a ``key``. They and standby processes have as ``owner`` the task manager that started
    them. ``claim``: the key that the supervisor's record on disk has, which a standby process gets before it begins.
    ``origin``: the name with which a standby process was started. ``gpus``: addresses that an executor was given.
    """

    pid: int
    name: str
    machine: Machine
    party: Party
    started: float  # virtual seconds
    key: DriverKey | ExecutorKey | None = None
    owner: str = ""
    claim: DriverKey | ExecutorKey | None = None
    origin: str = ""
    gpus: tuple[str, ...] = ()
    exit_code: int | None = None
    outcome: AttemptOutcome | None = None  # what a driver has written to its machine's disk
    term: asyncio.Event = field(default_factory=asyncio.Event)  # SIGTERM was sent
    on_exit: list[Callable[[Process], None]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    @property
    def frozen(self) -> bool:
        return self.party.scope.state is ScopeState.FROZEN


class Machine:
    """A node: a host address, a clock, processes."""

    def __init__(self, name: str, host: str, clock: VirtualClock) -> None:
        self.name = name
        self.host = host
        self.clock = clock
        self.up = True
        self.old = False  # processes that are started are of release 0.1.0


class Machines:
    """All machines and all processes of a simulation."""

    def __init__(self, loop: VirtualLoop, network: SimNetwork, history: History) -> None:
        self.loop = loop
        self.network = network
        self.history = history
        self.machines: dict[str, Machine] = {}
        self._alive: dict[int, Process] = {}
        self._pids = itertools.count(100)
        self.on_start: list[Callable[[Process], None]] = []
        self.on_end: list[Callable[[Process], None]] = []

    def add(self, name: str, host: str, clock: VirtualClock) -> Machine:
        """Add a machine that is switched on."""
        machine = self.machines[name] = Machine(name, host, clock)
        self.network.add_host(host, name)
        return machine

    def start(
        self,
        machine: Machine,
        name: str,
        *,
        key: DriverKey | ExecutorKey | None = None,
        owner: str = "",
        gpus: tuple[str, ...] = (),
    ) -> Process:
        """Start a process that does nothing yet; its work is spawned in ``process.party.scope``."""
        pid = next(self._pids)
        scope = self.loop.scope(f"{name}#{pid}")
        scope.clock = machine.clock
        party = Party(name, machine.name, scope, machine.old)
        process = Process(pid, name, machine, party, self.loop.time(), key=key, owner=owner)
        process.claim, process.gpus = key, gpus
        self._alive[pid] = process
        self.history.add(name, f"process starts, pid {pid}")
        for told in self.on_start:
            told(process)
        return process

    def become(
        self, process: Process, name: str, key: DriverKey | ExecutorKey | None, gpus: tuple[str, ...] = ()
    ) -> None:
        """Let a process that was not a job's begin as one."""
        self.history.add(process.name, f"becomes {name}, pid {process.pid}")
        process.name, process.key, process.started = name, key, self.loop.time()
        process.gpus = gpus
        process.party = replace(process.party, name=name)
        for told in self.on_start:
            told(process)

    def exit(self, process: Process, code: int) -> None:
        """End a process with an exit code (negative: a signal). None of its tasks runs again. Idempotent."""
        if not process.alive:
            return
        process.exit_code = code
        process.party.scope.kill()
        del self._alive[process.pid]
        self.network.process_died(process.party)
        self.history.add(process.name, f"process {process.pid} ends with {code}")
        for told in (*process.on_exit, *self.on_end):
            told(process)

    def kill(self, process: Process) -> None:
        """End a process with SIGKILL."""
        self.exit(process, SIGKILL_CODE)

    def crash(self, machine: Machine) -> None:
        """Switch a machine off: kill its processes and make its node unreachable."""
        machine.up = False
        self.network.node_down(machine.name)
        for process in list(self.alive(machine)):
            self.kill(process)

    def power_on(self, machine: Machine) -> None:
        machine.up = True
        self.network.node_up(machine.name)

    def alive(self, machine: Machine | None = None) -> Iterator[Process]:
        """Return the census: all living processes, or those on one machine, in the order of their starts."""
        return (process for process in self._alive.values() if machine is None or process.machine is machine)

    def drivers(self) -> Iterator[Process]:
        """Return all living drivers."""
        return (process for process in self._alive.values() if isinstance(process.key, DriverKey))

    def executors(self) -> Iterator[Process]:
        """Return all living executors."""
        return (process for process in self._alive.values() if isinstance(process.key, ExecutorKey))

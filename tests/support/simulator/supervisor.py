"""The supervisor of one task manager process: starts, renames and ends processes on a simulated machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, OnExit
from emberkeep.base.errors import Absent, Conflict
from emberkeep.taskmanager.ports import ProcessKey
from tests.support.simulator.machines import Machine, Machines, Process

_USUAL_END, _SLOW_END = 1.0, 12.0  # seconds that a killed process takes to end, at most
SLOWEST_END = _USUAL_END + _SLOW_END


@dataclass(frozen=True)
class Program:
    """What a process does. ``shown``: its name in the history. ``key``: None for a standby process."""

    shown: str
    key: ProcessKey | None
    begin: Callable[[Process], None]
    gpus: tuple[str, ...] = ()


@dataclass(eq=False)
class _Family:
    process: Process
    on_exit: OnExit
    is_adopted: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class SimSupervisor:
    """Implements Supervisor. ``programs``: by the names with which processes are started or that they get.

    ``slow_ends``: probability that a killed process takes seconds to end.
    """

    def __init__(
        self, machines: Machines, machine: Machine, agent: Process, rng: random.Random, slow_ends: float
    ) -> None:
        self.programs: dict[str, Program] = {}
        self.on_kill: list[Callable[[Process], None]] = []
        self._machines = machines
        self._machine = machine
        self._agent = agent
        self._rng = rng
        self._slow_ends = slow_ends
        self._families: dict[str, _Family] = {}
        self._takers: dict[str, str] = {}  # names that processes were to get, by those with which they were started

    def process(self, name: str) -> Process | None:
        """Return the process with this name whose end was not reported yet."""
        family = self._families.get(name)
        return None if family is None else family.process

    async def start(self, request: StartRequest, on_exit: OnExit) -> int:
        """Implements Supervisor. Raises Conflict."""
        self._require_free(request.name)
        program = self.programs[request.name]
        process = self._machines.start(
            self._machine, program.shown, key=program.key, owner=self._agent.name, gpus=program.gpus
        )
        self._watch(request.name, _Family(process, on_exit))
        program.begin(process)
        return process.pid

    def adopt(self, name: str, process: Process, on_exit: OnExit) -> None:
        """Take over a process that an earlier supervisor has started."""
        self._watch(name, _Family(process, on_exit, is_adopted=True))

    def _watch(self, name: str, family: _Family) -> None:
        self._families[name] = family
        # A dead or frozen task manager does not notice the end.
        family.process.on_exit.append(lambda _: self._agent.party.scope.call_soon(self._conclude, family))

    def _conclude(self, family: _Family) -> None:
        name = next(name for name, known in self._families.items() if known is family)
        code = None if family.is_adopted else family.process.exit_code or 0
        family.on_exit(Exit(name, code))
        del self._families[name]
        family.ended.set()

    async def raise_priority(self, name: str) -> None:
        """Implements Supervisor: simulated processes have no priority."""

    async def rename(self, name: str, new_name: str, on_exit: OnExit, share: Share | None = None) -> int:
        """Implements Supervisor. Raises Absent, Conflict. If it fails, the record on disk may have the new name."""
        self._require_free(new_name)
        taker = self._takers.setdefault(name, new_name)
        if taker != new_name:
            names = [self.programs[each].shown for each in (name, taker, new_name)]
            self._machines.history.violate("q", f"{names[0]} is taken by {names[1]} and by {names[2]}")
        family = self._families.get(name)
        if family is None or not family.process.alive:
            raise Absent(f"the process {name} has ended")
        self._machines.history.add(self._agent.name, f"takes {family.process.name} as {self.programs[new_name].shown}")
        await asyncio.sleep(self._rng.uniform(0.0005, 0.01))
        family.process.claim = self.programs[new_name].key
        await asyncio.sleep(self._rng.uniform(0.0005, 0.01))
        if not family.process.alive:
            raise Absent(f"the process {name} has ended")
        del self._families[name]
        self._families[new_name] = family
        family.on_exit = on_exit
        return family.process.pid

    def _require_free(self, name: str) -> None:
        if name in self._families:
            raise Conflict(f"a process {name} runs already")

    async def stop(self, name: str, grace: float) -> None:
        """Implements Supervisor."""
        family = self._families.get(name)
        if family is None or not family.process.alive:
            return
        process = family.process
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process.on_exit.append(lambda _: None if gone.done() else gone.set_result(None))
        if grace > 0:
            for told in self.on_kill:
                told(process)
            process.term.set()
            done, _ = await asyncio.wait({gone}, timeout=grace)
            if done:
                return
        # A killed process may take some time to end, and holds its resources until then.
        await asyncio.sleep(self._rng.choice((0.002, self._rng.uniform(0.01, _USUAL_END))))
        if self._slow_ends and self._rng.random() < self._slow_ends:
            await asyncio.sleep(self._rng.uniform(1.0, _SLOW_END))
        self.kill(process)
        await family.ended.wait()

    def kill(self, process: Process) -> None:
        """End a process at once."""
        if process.alive:
            for told in self.on_kill:
                told(process)
        self._machines.kill(process)

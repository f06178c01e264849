"""Standby processes of a simulated task manager, and what task managers have of them: links, directories, a room.

A standby process here follows ``daemons.driver.standby``. Its fate is one of FATES.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from emberkeep import __version__
from emberkeep.base.errors import Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.daemons.records.standby_messages import Confirm, Import, Imported, Ready, StandbyMessage, Take, Taken
from emberkeep.daemons.taskmanager import standby_starts
from emberkeep.daemons.taskmanager.standby_takes import TakeOver
from emberkeep.jobs.model import JobGraph
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from tests.support.simulator.machines import Machine, Machines, Process
from tests.support.simulator.supervisor import Program
from tests.support.simulator.virtual_loop import seeded_random

WARM_UP = (0.5, 4.0)  # seconds
IMPORTS = (0.1, 3.0)  # seconds
HANG = (1.0, 40.0)  # seconds: shorter and longer than a task manager waits for an answer
STALL = (15.0, 45.0)  # seconds: longer than a lease
UNFETCHED = 0.1  # probability that the files of a job cannot be fetched for its reserved standby
FATES = ("dies", "runs out of memory", "hangs", "speaks nonsense", "stalls")
STALLS = "stalls"  # it has become the job's process, and stands still before that begins
DEFAULTS = {
    StandbyKind.DRIVER: StandbyProfile(StandbyKind.DRIVER, 384),
    StandbyKind.EXECUTOR: StandbyProfile(StandbyKind.EXECUTOR, 768),
}


class Stage(enum.IntEnum):
    """How far a standby process has come. It ends with its task manager while it is not ORDERED yet."""

    WARMING = 1
    READY = 2
    ORDERED = 3
    ANSWERED = 4
    BEGUN = 5


class SimLink:
    """Implements DriverLink, and is the process's end of the link as well."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self._to_agent: asyncio.Queue[StandbyMessage | str | None] = asyncio.Queue()
        self._to_process: asyncio.Queue[StandbyMessage | None] = asyncio.Queue()
        self._is_closed = False

    # --- the task manager's end ---------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return 0

    def began(self, pid: int) -> None:
        assert self.process is not None
        assert self.process.pid == pid

    async def receive(self) -> StandbyMessage | None:
        message = await self._to_agent.get()
        if message is None:
            self._to_agent.put_nowait(None)
        if isinstance(message, str):
            raise Fatal(f"a message of a standby process cannot be read: {message}")
        return message

    async def ask(self, order: Import) -> None:
        self._send(order)

    async def order(self, order: Take) -> None:
        self._send(order)

    def confirm(self) -> None:
        self._send(Confirm())

    def _send(self, message: StandbyMessage) -> None:
        if self.process is None or not self.process.alive or self._is_closed:
            raise BrokenPipeError(32, "Broken pipe")
        self._to_process.put_nowait(message)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._to_process.put_nowait(None)

    # --- the process's end --------------------------------------------------------------------------------------------

    def say(self, message: StandbyMessage | str) -> None:
        if not self._is_closed:
            self._to_agent.put_nowait(message)

    async def heard(self) -> StandbyMessage | None:
        return await self._to_process.get()

    def process_ended(self) -> None:
        self._to_agent.put_nowait(None)


@dataclass(eq=False)
class SimStandby:
    """A standby process.

    ``programs``: what it can become, by name. ``fate``: how it fails when it is taken. ``reserved_for``: the job whose
    packages it has imported.
    """

    process: Process
    profile: StandbyProfile
    link: SimLink
    agent: Process
    room: StandbyRoom
    programs: dict[str, Program]
    rng: random.Random
    release: str
    stage: Stage = Stage.WARMING
    fate: str = ""
    reserved_for: str = ""

    def __post_init__(self) -> None:
        self.link.process = self.process
        self.process.on_exit.append(lambda _: self.agent.party.scope.call_soon(self.link.process_ended))
        self.agent.on_exit.append(self._agent_ended)

    def _agent_ended(self, agent: Process) -> None:
        if not self.process.alive:
            return
        if self.stage < Stage.ORDERED:
            if agent.exit_code == 0 and self.process.origin not in self.room.wanted:
                self.room.machines.history.violate("s", f"{agent.name} has ended, and not {self.process.name}")
            self.room.machines.kill(self.process)  # the kernel does that for a process that is tied to its parent
        self.link.close()

    async def run(self) -> None:
        """Warm up, wait for an order and become a job's process."""
        machines, rng = self.room.machines, self.rng
        await asyncio.sleep(rng.uniform(*WARM_UP))
        if self.process.machine.name in self.room.starved:
            machines.kill(self.process)
        self.link.say(Ready(release=self.release))
        self.stage = Stage.READY
        order = await self.link.heard()
        if isinstance(order, Import):
            self.reserved_for = order.module
            await self._import()
            order = await self.link.heard()
        if not isinstance(order, Take):
            machines.exit(self.process, 0)
            return
        self.stage = Stage.ORDERED
        await asyncio.sleep(rng.uniform(0.001, 0.2))
        if self.fate:
            machines.history.count(f"standby {self.fate}")
            machines.history.add(self.process.name, f"{self.fate}, at the order to become {order.arguments[0]}")
        await self._suffer()
        self.stage = Stage.ANSWERED
        self.link.say("nonsense" if self.fate == "speaks nonsense" else Taken())
        if self.fate == STALLS:
            await self._stall()
        if isinstance(await self.link.heard(), Confirm):
            self._become(self.programs[order.arguments[0]])
        else:
            machines.exit(self.process, 0)

    async def _import(self) -> None:
        """Import what a job needs. Sometimes this ends the process, or takes longer than anybody waits."""
        machines, rng = self.room.machines, self.rng
        await asyncio.sleep(rng.uniform(*IMPORTS))
        if rng.random() < self.room.bad_imports:
            machines.history.count("reserved standby dies of an import")
            machines.exit(self.process, 1)
            await asyncio.sleep(0)
        if rng.random() < self.room.bad_imports:
            machines.history.count("reserved standby hangs in an import")
            await asyncio.sleep(2 * standby_starts._IMPORT_SECONDS)
        self.link.say(Imported(packages=1))

    async def _suffer(self) -> None:
        machines = self.room.machines
        if self.fate == "dies":
            machines.exit(self.process, 1)
        elif self.fate == "runs out of memory":
            machines.kill(self.process)
        elif self.fate == "hangs":
            await asyncio.sleep(self.rng.uniform(*HANG))
        await asyncio.sleep(0)  # a process that has ended does not come back from here

    async def _stall(self) -> None:
        scope = self.process.party.scope
        scope.freeze()
        # Without a context of its own: what thaws the process must not be frozen with it.
        self.room.machines.loop.call_later(self.rng.uniform(*STALL), scope.thaw, context=self.room.context)
        await asyncio.sleep(0)

    def _become(self, program: Program) -> None:
        machines, process = self.room.machines, self.process
        if process.claim is None or process.claim != program.key:
            machines.history.violate("q", f"{process.name} becomes {program.shown}, and its record says another thing")
        if self.release != __version__:
            machines.history.violate("q", f"{process.name} of release {self.release} becomes {program.shown}")
        if self.reserved_for and (program.key is None or program.key.job_id != self.reserved_for):
            machines.history.violate("u", f"{process.name}, of job {self.reserved_for[:8]}, becomes {program.shown}")
        elif self.reserved_for:
            machines.history.count("reserved standby began")
        self.stage = Stage.BEGUN
        machines.history.count("standby began")
        machines.become(process, program.shown, program.key, program.gpus)
        program.begin(process)


class SimJobFiles:
    """Implements ReservedFiles. The module that a standby is told to import is the name of its job."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.held: set[tuple[str, JobId]] = set()

    async def fetch(self, standby: str, directory: Path, graph: JobGraph) -> Import:
        self.held.add((standby, graph.job_id))
        await asyncio.sleep(self._rng.uniform(0.01, 1.0))
        if self._rng.random() < UNFETCHED:
            raise RetryLater("the files cannot be fetched just now")
        return Import(script="", module=graph.job_id, places=())

    def release(self, standby: str, job_id: JobId) -> None:
        self.held.discard((standby, job_id))


class SimStandbyFiles:
    """Implements StandbyFiles on the disk of a simulated machine, which is ``kept``. See StandbyRoom for ``wanted``."""

    def __init__(self, kept: dict[str, None], wanted: set[str], rng: random.Random) -> None:
        self._kept = kept
        self._wanted = wanted
        self._rng = rng

    def directory(self, name: str) -> Path:
        return Path("/standbys") / name

    def has(self, name: str) -> bool:
        return name in self._kept

    async def make(self, name: str) -> None:
        await self._work()
        self._kept[name] = None

    async def prepare(self, name: str, wanted: TakeOver) -> None:
        self._wanted.add(name)
        await self._work()
        wanted.record()

    async def remove(self, name: str) -> None:
        await self._work()
        self._kept.pop(name, None)

    def remove_later(self, name: str) -> None:
        self._kept.pop(name, None)

    def clean_up(self, used: AbstractSet[str]) -> None:
        for name in [name for name in self._kept if name not in used]:
            del self._kept[name]

    async def _work(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.0005, 0.02))


@dataclass
class StandbyRoom:
    """Data that all standby processes of a simulation share.

    ``bad_imports``: probability that an import ends a process, and that one hangs.

    ``sizes``, ``slots``: of each task manager's pool. ``standbys``: all that were ever started, by pid. ``releases``:
    other releases that were installed, by machine. ``starved``: machines on which warm-ups run out of memory.
    ``context``: of the world around the processes, which nothing freezes.
    """

    machines: Machines
    seed: str
    sizes: dict[StandbyKind, int]
    slots: int
    context: contextvars.Context
    bad_imports: float = 0.0
    standbys: dict[int, SimStandby] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    starved: set[str] = field(default_factory=set)
    disks: dict[str, dict[str, None]] = field(default_factory=dict)  # names of directories, by machine
    wanted: set[str] = field(default_factory=set)  # names of those that some job was to get
    on_start: list[Callable[[SimStandby], None]] = field(default_factory=list)

    def waiting(self, owner: str | None = None) -> list[SimStandby]:
        """Return the living standby processes that are not processes of jobs yet, of one task manager or of all."""
        return [
            each
            for each in self.standbys.values()
            if each.process.alive and each.stage < Stage.BEGUN and owner in (None, each.process.owner)
        ]

    def disk(self, machine: Machine) -> dict[str, None]:
        """Return the directories of standby processes on a machine."""
        return self.disks.setdefault(machine.name, {})

    def program(
        self, profile: StandbyProfile, link: SimLink, agent: Process, programs: dict[str, Program], name: str
    ) -> Program:
        """Return what a process does that is started as a standby."""
        standby_id = name.removeprefix("standby-").rpartition("-")[0]  # without the part that is drawn anew each time

        def begin(process: Process) -> None:
            rng = seeded_random(self.seed, f"{process.name}#{process.pid}")
            release = self.releases.get(process.machine.name, __version__)
            standby = SimStandby(process, profile, link, agent, self, programs, rng, release)
            self.standbys[process.pid] = standby
            process.origin = name
            for told in self.on_start:
                told(standby)
            self.machines.history.count("standby started")
            process.party.scope.spawn(standby.run(), "main")

        return Program(f"standby {standby_id} of {agent.name}", None, begin)

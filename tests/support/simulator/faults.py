"""The nemesis: draws faults from the seed, applies them to a simulated cluster, and undoes all of them at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
from tests.support.simulator.cluster import JM_NODE, SimCluster, TaskManagerNode
from tests.support.simulator.infrastructure.faults import InfrastructureFaults
from tests.support.simulator.job_store import SimStore
from tests.support.simulator.machines import Process
from tests.support.simulator.network import Conditions
from tests.support.simulator.standby_faults import StandbyFaults
from tests.support.simulator.storage.faults import StorageFaults

Undo = Callable[[], None]


@dataclass(frozen=True)
class Menace:
    """Frequency and duration of faults, in seconds. ``pause``: mean time between two faults."""

    pause: float = 4.0
    shortest: float = 0.2
    longest: float = 45.0
    kinds: tuple[str, ...] = ()  # empty: all standard kinds


class Nemesis:
    """Applies faults to a cluster. Their targets are drawn from the processes that are alive at that moment."""

    def __init__(self, cluster: SimCluster, rng: random.Random, menace: Menace) -> None:
        self._cluster = cluster
        self._rng = rng
        self._menace = menace
        self._pending: dict[asyncio.Task[None], None] = {}
        self._blocked: dict[str, None] = {}  # nodes that were ever blocked
        self._applied = 0
        everything: dict[str, tuple[int, Callable[[], Undo | None]]] = {
            "kill executor": (5, self._kill_executor),
            "kill driver": (4, self._kill_driver),
            "kill agent": (4, self._kill_agent),
            "crash node": (2, self._crash_node),
            "lose agent": (1, self._lose_agent),
            "kill jobmanager": (3, self._kill_job_manager),
            "freeze driver": (3, lambda: self._freeze(list(self._cluster.machines.drivers()))),
            "freeze agent": (2, lambda: self._freeze(self._agents())),
            "freeze node": (3, self._freeze_node),
            "abandon driver": (2, self._abandon_driver),
            "freeze jobmanager": (1, lambda: self._freeze(self._job_managers())),
            "cut off node": (5, self._cut_off_node),
            "cut off driver": (4, self._cut_off_driver),
            "cut between nodes": (2, self._cut_between_nodes),
            "bad network": (4, self._bad_network),
            "bad store": (2, self._bad_store),
            "clock jump": (1, self._clock_jump),
        }
        # Only if a menace names them, so that other seeds keep their meaning.
        asked: dict[str, tuple[int, Callable[[], Undo | None]]] = {
            "block node": (6, self._block_node),
            "unblock node": (3, self._unblock_node),
            "cut off jobmanager": (2, self._cut_off_job_manager),
            "lose store": (4, self._lose_store),
            "sever store": (4, self._sever_store),
            "put back store": (4, self._put_back_store),
        }
        self._standbys = StandbyFaults(cluster, rng, self._note)
        self._infrastructure = InfrastructureFaults(cluster, rng, self._note)
        self._storage = StorageFaults(cluster, rng, self._note)
        asked |= self._standbys.kinds() | self._infrastructure.kinds() | self._storage.kinds()
        everything |= {kind: fault for kind, fault in asked.items() if kind in menace.kinds}
        self._kinds = {kind: fault for kind, fault in everything.items() if not menace.kinds or kind in menace.kinds}

    async def run(self) -> None:
        """Apply faults until cancelled."""
        kinds = list(self._kinds)
        weights = [weight for weight, _ in self._kinds.values()]
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / self._menace.pause))
            self.do(self._rng.choices(kinds, weights)[0])

    def do(self, kind: str) -> bool:
        """Apply a fault of this kind if it has a target. Undo a fault that lasts after a random duration.

        Return True if it was applied.
        """
        before = self._applied
        undo = self._kinds[kind][1]()
        if undo is not None:
            self._later(kind, undo, self._duration())
        return self._applied > before

    def _later(self, kind: str, undo: Undo, seconds: float) -> None:
        task = asyncio.create_task(self._undo_later(kind, undo, seconds), name=f"undo {kind}")
        self._pending[task] = None
        task.add_done_callback(lambda done: self._pending.pop(done, None))

    def _duration(self) -> float:
        """Draw a duration in seconds: mostly short, sometimes up to ``longest``."""
        shortest, longest = self._menace.shortest, self._menace.longest
        if self._rng.random() < 0.65:
            longest = max(shortest, longest / 6)
        return self._rng.uniform(shortest, longest)

    async def _undo_later(self, kind: str, undo: Undo, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._cluster.history.add("nemesis", f"takes back: {kind}")
        undo()

    def heal(self) -> None:
        """Undo all faults: nothing stays frozen, cut off, blocked or down."""
        for task in self._pending:
            task.cancel()
        cluster = self._cluster
        cluster.history.add("nemesis", "heals everything")
        cluster.network.heal()
        cluster.store.trouble = 0.0
        cluster.store.away_since = None
        cluster.store.severed.clear()
        self._standbys.heal()
        self._infrastructure.heal()
        self._storage.heal()
        for name in list(self._blocked):
            cluster.blocklist.unblock(name)
        for process in cluster.machines.alive():
            process.party.scope.thaw()
        for machine in cluster.machines.machines.values():
            cluster.machines.power_on(machine)
        cluster.start_job_manager()
        for node in cluster.nodes:
            cluster.start_agent(node)

    # --- the faults ---------------------------------------------------------------------------------------------------

    def _note(self, what: str, kind: str) -> None:
        self._applied += 1
        self._cluster.history.add("nemesis", what)
        self._cluster.history.count(f"fault: {kind}")

    def _kill_executor(self) -> None:
        executors = list(self._cluster.machines.executors())
        if executors:
            victim = self._rng.choice(executors)
            self._note(f"kills {victim.name}", "kill executor")
            self._cluster.machines.kill(victim)

    def _kill_driver(self) -> None:
        drivers = list(self._cluster.machines.drivers())
        if drivers:
            victim = self._rng.choice(drivers)
            self._note(f"kills {victim.name}", "kill driver")
            self._cluster.machines.kill(victim)

    def _agents(self) -> list[Process]:
        return [node.agent for node in self._cluster.nodes if node.agent is not None and node.agent.alive]

    def _job_managers(self) -> list[Process]:
        jm = self._cluster.jm_process
        return [jm] if jm is not None and jm.alive else []

    def _living_nodes(self) -> list[TaskManagerNode]:
        return [node for node in self._cluster.nodes if node.agent is not None and node.agent.alive]

    def _kill_agent(self) -> Undo | None:
        nodes = self._living_nodes()
        if not nodes:
            return None
        node = self._rng.choice(nodes)
        assert node.agent is not None
        self._note(f"kills task manager {node.id}", "kill agent")
        self._cluster.machines.kill(node.agent)
        return lambda: self._cluster.start_agent(node)

    def _lose_agent(self) -> None:
        """Kill a task manager for longer than its drivers and executors continue without it."""
        undo = self._kill_agent()
        if undo is not None:
            self._cluster.history.count("fault: lose agent")
            self._later("kill agent", undo, self._cluster.configuration[ORPHAN_TIMEOUT] + self._rng.uniform(1.0, 20.0))

    def _crash_node(self) -> Undo | None:
        nodes = [node for node in self._cluster.nodes if node.machine.up]
        if not nodes:
            return None
        node = self._rng.choice(nodes)
        self._note(f"switches {node.machine.name} off", "crash node")
        self._cluster.machines.crash(node.machine)

        def undo() -> None:
            self._cluster.machines.power_on(node.machine)
            self._cluster.start_agent(node)

        return undo

    def _kill_job_manager(self) -> Undo | None:
        for victim in self._job_managers():
            self._note("kills the JobManager", "kill jobmanager")
            self._cluster.machines.kill(victim)
            return self._cluster.start_job_manager
        return None

    def _freeze(self, processes: list[Process]) -> Undo | None:
        processes = [process for process in processes if not process.frozen]
        if not processes:
            return None
        victim = self._rng.choice(processes)
        self._note(f"freezes {victim.name}", "freeze")
        victim.party.scope.freeze()
        return victim.party.scope.thaw

    def _freeze_node(self) -> Undo:
        """Freeze all processes on a machine, as a hypervisor that pauses it does."""
        node = self._rng.choice(self._cluster.nodes)
        self._note(f"freezes everything on {node.machine.name}", "freeze node")
        frozen = list(self._cluster.machines.alive(node.machine))
        for process in frozen:
            process.party.scope.freeze()

        def undo() -> None:
            for process in frozen:
                process.party.scope.thaw()

        return undo

    def _abandon_driver(self) -> Undo | None:
        """Freeze a driver for longer than its lease, and its task manager's agent for longer than the driver.

        When the driver wakes up, only the driver itself can end it.
        """
        drivers = [driver for driver in self._cluster.machines.drivers() if not driver.frozen]
        if not drivers:
            return None
        driver = self._rng.choice(drivers)
        node = next(node for node in self._cluster.nodes if node.id == driver.owner)
        self._note(f"freezes {driver.name} for long, {node.id} for longer", "abandon driver")
        scopes = [driver.party.scope]
        if node.agent is not None and node.agent.alive:
            scopes.append(node.agent.party.scope)
        for scope in scopes:
            scope.freeze()
        lease = self._cluster.configuration[DRIVER_LEASE] + self._cluster.configuration[HEARTBEAT_TIMEOUT]
        self._later("freeze driver", scopes[0].thaw, lease + self._rng.uniform(0.0, 10.0))
        for scope in scopes[1:]:
            self._later("freeze agent", scope.thaw, lease + self._rng.uniform(10.0, 25.0))
        return None

    def _cut(self, here: str, there: str, kind: str) -> Undo:
        """Cut the network between two places, in both directions or in one."""
        both = ((here, there), (there, here))
        ways = self._rng.choice((both, both, both[:1], both[1:]))
        network = self._cluster.network
        self._note(f"cuts {' and '.join(' → '.join(way) for way in ways)}", kind)
        for way in ways:
            network.cut(*way)

        def undo() -> None:
            for way in ways:
                network.mend(*way)

        return undo

    def _cut_off_node(self) -> Undo:
        return self._cut(self._rng.choice(self._cluster.nodes).machine.name, JM_NODE, "cut off node")

    def _cut_off_job_manager(self) -> Undo:
        """Cut the JobManager off from all nodes, or from most of them."""
        nodes = [node.machine.name for node in self._cluster.nodes]
        chosen = self._rng.sample(nodes, self._rng.randint(len(nodes) // 2 + 1, len(nodes)))
        undos = [self._cut(node, JM_NODE, "cut off jobmanager") for node in chosen]

        def undo() -> None:
            for each in undos:
                each()

        return undo

    def _cut_off_driver(self) -> Undo | None:
        drivers = list(self._cluster.machines.drivers())
        if not drivers:
            return None
        others = [JM_NODE, *(node.machine.name for node in self._cluster.nodes)]
        return self._cut(self._rng.choice(drivers).name, self._rng.choice(others), "cut off driver")

    def _cut_between_nodes(self) -> Undo | None:
        if len(self._cluster.nodes) < 2:
            return None
        one, other = self._rng.sample(self._cluster.nodes, 2)
        return self._cut(one.machine.name, other.machine.name, "cut between nodes")

    def _bad_network(self) -> Undo:
        network, rng = self._cluster.network, self._rng
        network.conditions = Conditions(
            delay_mean=rng.choice((0.004, 0.05, 0.3)),
            slow=rng.choice((0.0, 0.05, 0.2)),
            loss=rng.choice((0.0, 0.0, 0.02, 0.15)),
            repeat=rng.choice((0.05, 0.3)),
        )
        self._note(f"spoils the network: {network.conditions}", "bad network")

        def undo() -> None:
            network.conditions = Conditions()

        return undo

    def _bad_store(self) -> Undo:
        store = self._cluster.store
        store.trouble = self._rng.choice((0.2, 0.6))
        self._note(f"lets {store.trouble:.0%} of the store's operations fail", "bad store")

        def undo() -> None:
            store.trouble = 0.0

        return undo

    def _lose_store(self) -> Undo:
        """Make the store unavailable for every JobManager, as when its disk is full."""
        store = self._cluster.store
        store.lose()
        self._note("takes the store away", "lose store")

        def undo() -> None:
            store.away_since = None

        return undo

    def _sever_store(self) -> Undo | None:
        """Make the store unavailable for the current leader, but not for the next one."""
        store = self._cluster.store
        for leader in self._job_managers():
            store.sever(leader)
            self._note("takes the store away from the leader", "sever store")
            return partial(_reach_again, store, leader)
        return None

    def _put_back_store(self) -> Undo | None:
        """Replace the store with its older copy, or take a copy if there is none that fits."""
        store = self._cluster.store
        for leader in self._job_managers():
            if not store.may_put_back():
                store.take_copy()
                return None
            self._cluster.machines.kill(leader)
            store.put_back()
            self._note("puts an older copy of the store back", "put back store")
            return self._cluster.start_job_manager
        return None

    def _block_node(self) -> None:
        node = self._rng.choice(self._cluster.nodes).machine.name
        action = self._rng.choice(list(BlockAction))
        seconds = self._rng.choice((None, self._rng.uniform(1.0, 30.0)))
        drivers = EvacuatedDrivers.RESTART if seconds is None else EvacuatedDrivers.WAIT
        self._note(f"blocks {node}: {action.value}, drivers {drivers.value}", "block node")
        self._blocked[node] = None
        self._cluster.blocklist.block(node, action, seconds, drivers)

    def _unblock_node(self) -> None:
        if self._blocked:
            node = self._rng.choice(list(self._blocked))
            self._note(f"unblocks {node}", "unblock node")
            self._cluster.blocklist.unblock(node)

    def _clock_jump(self) -> None:
        machine = self._rng.choice(list(self._cluster.machines.machines.values()))
        by_ms = self._rng.choice((-86_400_000, -3_000, 60_000, 86_400_000))
        self._note(f"sets the clock of {machine.name} by {by_ms} ms", "clock jump")
        machine.clock.jump(by_ms)


def _reach_again(store: SimStore, leader: Process) -> None:
    store.severed.pop(leader, None)

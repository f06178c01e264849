"""Faults of links, disks, clocks, elections and of a rolling upgrade. The nemesis uses those that a menace names."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable
from functools import partial

from emberkeep.base.errors import Unavailable
from tests.support.simulator.cluster import JM_NODE, SimCluster, TaskManagerNode
from tests.support.simulator.infrastructure.contended_cluster import ContendedCluster
from tests.support.simulator.job_store import USUALLY_SLOW
from tests.support.simulator.machines import Process

Undo = Callable[[], None]
USUAL_DISK_SECONDS = 0.02
SLOW_DISK_SECONDS = (1.0, 4.0)
RATES = (0.95, 0.99, 1.01, 1.05)  # seconds in a second; a quartz is a thousand times better


class InfrastructureFaults:
    """Applies faults to what processes run on. ``note``: records a fault and its kind."""

    def __init__(self, cluster: SimCluster, rng: random.Random, note: Callable[[str, str], None]) -> None:
        self._cluster = cluster
        self._rng = rng
        self._note = note
        self._steps = 0  # heal makes what was scheduled before it void
        self._leaving: list[Process] = []

    def kinds(self) -> dict[str, tuple[int, Callable[[], Undo | None]]]:
        """Return all faults by kind, with their weights."""
        return {
            "flap link": (3, self._flap_link),
            "slow store": (2, self._slow_store),
            "slow disk": (2, self._slow_disk),
            "failing disk": (2, self._failing_disk),
            "drift clock": (2, self._drift_clock),
            "drift timers": (2, self._drift_timers),
            "rolling restart": (1, self._rolling_restart),
            "rolling upgrade": (1, self._rolling_upgrade),
            "lose session": (2, self._lose_session),
            "suspend session": (2, self._suspend_session),
            "lose quorum": (2, self._lose_quorum),
        }

    def heal(self) -> None:
        """Undo all faults."""
        self._steps += 1
        cluster = self._cluster
        cluster.store.slow = USUALLY_SLOW
        for node in cluster.nodes:
            node.record.problem = None
            if node.record.seconds in SLOW_DISK_SECONDS:
                node.record.seconds = USUAL_DISK_SECONDS
        for machine in cluster.machines.machines.values():
            machine.clock.drift(0.0)
            if machine.clock.rate != 1.0:
                machine.clock.run_at(1.0)
        for agent in self._leaving:  # so that the next one can start
            cluster.machines.kill(agent)

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        """Take a step later, unless all faults are undone before."""

        def act(steps: int) -> None:
            if steps == self._steps:
                step()

        # In a context of its own: a step of a dead process would never run.
        self._cluster.loop.call_later(seconds, act, self._steps, context=contextvars.Context())

    # --- links --------------------------------------------------------------------------------------------------------

    def _flap_link(self) -> Undo:
        """Cut the link between a node and another one or the JobManager's again and again, in one direction or both."""
        cluster, rng = self._cluster, self._rng
        here = rng.choice(cluster.nodes).machine.name
        there = rng.choice([JM_NODE, *(node.machine.name for node in cluster.nodes if node.machine.name != here)])
        ways = rng.choice((((here, there),), ((there, here),), ((here, there), (there, here))))
        shortest, longest = rng.choice(((0.05, 0.5), (0.3, 3.0), (2.0, 8.0)))
        self._note(f"lets the link {' and '.join(' → '.join(way) for way in ways)} flap", "flap link")
        is_cut, is_over = False, False

        def turn() -> None:
            nonlocal is_cut
            if is_over:
                return
            is_cut = not is_cut
            for way in ways:
                cluster.network.cut(*way) if is_cut else cluster.network.mend(*way)
            self._later(rng_of_link.uniform(shortest, longest), turn)

        def undo() -> None:
            nonlocal is_over
            is_over = True
            if is_cut:
                for way in ways:
                    cluster.network.mend(*way)

        rng_of_link = random.Random(rng.random())
        turn()
        return undo

    # --- disks --------------------------------------------------------------------------------------------------------

    def _slow_store(self) -> Undo:
        store = self._cluster.store
        store.slow = self._rng.choice((0.5, 0.9))
        self._note(f"lets {store.slow:.0%} of the store's operations take long", "slow store")

        def undo() -> None:
            store.slow = USUALLY_SLOW

        return undo

    def _slow_disk(self) -> Undo:
        """Let a task manager's writes of its record take seconds."""
        node = self._rng.choice(self._cluster.nodes)
        node.record.seconds = self._rng.choice(SLOW_DISK_SECONDS)
        self._note(f"lets the disk of {node.machine.name} take {node.record.seconds} s for a write", "slow disk")

        def undo() -> None:
            node.record.seconds = USUAL_DISK_SECONDS

        return undo

    def _failing_disk(self) -> Undo:
        node = self._rng.choice(self._cluster.nodes)
        node.record.problem = Unavailable("no space left on device")
        self._note(f"fills the disk of {node.machine.name}", "failing disk")

        def undo() -> None:
            node.record.problem = None

        return undo

    # --- clocks -------------------------------------------------------------------------------------------------------

    def _drift_clock(self) -> Undo:
        machine = self._rng.choice(list(self._cluster.machines.machines.values()))
        rate = self._rng.choice((-0.5, -0.05, 0.05, 1.0))
        self._note(f"lets the clock of {machine.name} gain {rate} s per second", "drift clock")
        machine.clock.drift(rate)
        return partial(machine.clock.drift, 0.0)

    def _drift_timers(self) -> Undo:
        """Let everything that a machine measures run a little too fast or too slow, as a bad oscillator does."""
        machine = self._rng.choice(list(self._cluster.machines.machines.values()))
        rate = self._rng.choice(RATES)
        self._note(f"lets the timers of {machine.name} count {rate} s per second", "drift timers")
        machine.clock.run_at(rate)
        return partial(machine.clock.run_at, 1.0)

    # --- upgrades -----------------------------------------------------------------------------------------------------

    def _rolling_restart(self) -> None:
        """End all task managers in order, one after the other, then kill the JobManager; start each one again."""
        self._note("restarts all task managers, one after the other, then the JobManager", "rolling restart")
        at = 0.0
        for node in self._cluster.nodes:
            self._later(at, partial(self._leave, node))
            at += self._rng.uniform(1.0, 6.0)
        self._later(at, self._replace_job_manager)

    def _rolling_upgrade(self) -> None:
        """Upgrade the JobManager from release 0.1.0, then all task managers, one after the other."""
        cluster = self._cluster
        if not any(machine.old for machine in cluster.machines.machines.values()):
            return
        self._note("upgrades the JobManager, then all task managers, one after the other", "rolling upgrade")
        cluster.jm_machine.old = False
        self._replace_job_manager()
        at = 0.0
        for node in cluster.nodes:
            at += self._rng.uniform(2.0, 12.0)
            self._later(at, partial(self._upgrade, node))

    def _upgrade(self, node: TaskManagerNode) -> None:
        """Install this release on a node. What runs there goes on as it is, but for its task manager."""
        node.machine.old = False
        self._leave(node)

    def _leave(self, node: TaskManagerNode) -> None:
        agent = node.agent
        if agent is None or not agent.alive or agent.frozen:
            return
        seconds = self._rng.uniform(0.2, 2.0)
        agent.on_exit.append(lambda _: self._later(seconds, partial(self._cluster.start_agent, node)))
        self._leaving.append(agent)
        self._cluster.leave_agent(node)

    def _replace_job_manager(self) -> None:
        leader = self._cluster.jm_process
        if leader is not None and leader.alive:
            self._cluster.machines.kill(leader)
            self._later(self._rng.uniform(0.2, 2.0), self._cluster.start_job_manager)

    # --- elections, in clusters that hold them ------------------------------------------------------------------------

    def _contended(self) -> ContendedCluster | None:
        """Return the cluster if it can hold an election now: it has a leader, and the quorum that elects another."""
        cluster = self._cluster
        leader, store = cluster.jm_process, cluster.store
        leads = leader is not None and leader.alive and store.leader is leader and store.away_since is None
        return cluster if isinstance(cluster, ContendedCluster) and leads else None

    def _lose_session(self) -> None:
        """Let the leader's session expire: another JobManager leads before this one knows."""
        cluster = self._contended()
        if cluster is not None:
            self._note("lets the leader's session expire", "lose session")
            cluster.grant_to_another()

    def _suspend_session(self) -> None:
        """Let the leader's connection break: for some time it cannot confirm that it is the leader."""
        cluster = self._contended()
        if cluster is not None:
            self._note("suspends the leader's session", "suspend session")
            cluster.suspend_for_a_moment()

    def _lose_quorum(self) -> Undo | None:
        """Take the quorum away: no JobManager reaches the store, and none is elected."""
        cluster = self._contended()
        if cluster is None:
            return None
        leader, service = cluster.jm_process, cluster.jm_service
        assert leader is not None, "it lives"
        assert service is not None, "its process lives"
        self._note("takes the quorum away", "lose quorum")
        service.pause()
        cluster.store.lose()

        def undo() -> None:
            cluster.store.away_since = None
            if leader.alive:
                service.resume()

        return undo

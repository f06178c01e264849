"""Faults of standby processes. The nemesis uses those that a menace names."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.simulator.cluster import SimCluster, TaskManagerNode
from tests.support.simulator.machines import Process
from tests.support.simulator.standbys import FATES, STALLS, SimStandby, Stage

Undo = Callable[[], None]
OTHER_RELEASE = "0.0.1"


class StandbyFaults:
    """Applies faults to the standby processes of a cluster. ``note``: records a fault and its kind."""

    def __init__(self, cluster: SimCluster, rng: random.Random, note: Callable[[str, str], None]) -> None:
        self._cluster = cluster
        self._room = cluster.room.standbys
        self._rng = rng
        self._note = note
        self._leaving: list[Process] = []

    def kinds(self) -> dict[str, tuple[int, Callable[[], Undo | None]]]:
        """Return all faults by kind, with their weights."""
        return {
            "kill standby": (2, self._kill),
            "freeze standby": (3, self._freeze),
            "poison standby": (10, lambda: self._poison([fate for fate in FATES if fate != STALLS])),
            "stall standby": (3, lambda: self._poison([STALLS])),
            "starve standbys": (1, self._starve),
            "change release": (1, self._change_release),
            "leave agent": (2, self._leave_agent),
        }

    def heal(self) -> None:
        """Undo all faults."""
        self._room.starved.clear()
        self._room.releases.clear()
        for standby in self._room.waiting():
            standby.fate = ""
        for agent in self._leaving:  # so that the next one can start
            self._cluster.machines.kill(agent)

    def _victims(self) -> list[SimStandby]:
        """Return the processes that are not a job's yet: one that has answered is, for its task manager."""
        return [each for each in self._room.waiting() if each.stage < Stage.ANSWERED]

    def _kill(self) -> None:
        victims = self._victims()
        if victims:
            process = self._rng.choice(victims).process
            self._note(f"kills {process.name}", "kill standby")
            self._cluster.machines.kill(process)

    def _freeze(self) -> Undo | None:
        victims = [each.process for each in self._victims() if not each.process.frozen]
        if not victims:
            return None
        process = self._rng.choice(victims)
        self._note(f"freezes {process.name}", "freeze standby")
        process.party.scope.freeze()
        return process.party.scope.thaw

    def _poison(self, fates: list[str]) -> None:
        victims = [each for each in self._victims() if not each.fate]
        if victims:
            standby = self._rng.choice(victims)
            standby.fate = self._rng.choice(fates)
            kind = "stall standby" if standby.fate == STALLS else "poison standby"
            self._note(f"lets {standby.process.name} fail once it is taken: {standby.fate}", kind)

    def _starve(self) -> Undo:
        """Let the standby processes of a machine run out of memory, and those that are warmed next."""
        node = self._rng.choice(self._cluster.nodes)
        name = node.machine.name
        self._note(f"lets standby processes on {name} run out of memory", "starve standbys")
        self._room.starved.add(name)
        for standby in self._victims():
            if standby.process.machine is node.machine and self._rng.random() < 0.5:
                self._cluster.machines.kill(standby.process)
        return lambda: self._room.starved.discard(name)

    def _change_release(self) -> Undo:
        """Install another release under a running task manager."""
        name = self._rng.choice(self._cluster.nodes).machine.name
        self._note(f"installs another release on {name}", "change release")
        self._room.releases[name] = OTHER_RELEASE
        return lambda: _restore(self._room.releases, name)

    def _leave_agent(self) -> Undo | None:
        nodes = [node for node in self._cluster.nodes if _can_leave(node)]
        if not nodes:
            return None
        node = self._rng.choice(nodes)
        self._note(f"ends task manager {node.id} in order", "leave agent")
        assert node.agent is not None
        self._leaving.append(node.agent)
        self._cluster.leave_agent(node)
        return lambda: self._cluster.start_agent(node)


def _restore(releases: dict[str, str], name: str) -> None:
    releases.pop(name, None)


def _can_leave(node: TaskManagerNode) -> bool:
    return node.agent is not None and node.agent.alive and not node.agent.frozen

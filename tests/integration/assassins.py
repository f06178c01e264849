"""Kills a leader at a step: the moment that ZooKeeper holds what it has written, whatever it was about to do next."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from kazoo.client import KazooClient

from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.zookeeper.access.encrypted_connections import EncryptedHandler
from emberkeep.adapters.zookeeper.access.settings import EncryptionFiles
from emberkeep.adapters.zookeeper.access.signatures import content_of
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout, decode_node
from emberkeep.base.errors import Fatal
from emberkeep.client.clusters.cluster_file import ClusterRecord
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from tests.integration.clusters import kill_process
from tests.integration.conditions import DEADLINE

LAYOUT = ZooKeeperLayout("emberkeep", "default")
# What each step writes: a new node below this one, or a change to a node there.
STEPS = {"submit": LAYOUT.jobs, "start": LAYOUT.attempts, "cancel": LAYOUT.attempts, "finish": LAYOUT.results}


class Assassin:
    """Use as ``with``; it strikes once. Only jobs that come meanwhile count."""

    def __init__(self, record: ClusterRecord, victim: int, step: str, place: str = "") -> None:
        """``victim``: the leader's pid. ``place``: parent of the nodes that it looks at; "": that of the step."""
        self._kazoo = member_of(record)
        self._victims = [victim]
        self._step = step
        self._place = place or STEPS[step]
        self._known: set[str] = set()
        self._done = threading.Event()

    def __enter__(self) -> Assassin:
        self._kazoo.start(timeout=DEADLINE)
        self._known = set(self._kazoo.get_children(self._place))
        self._kazoo.ChildrenWatch(self._place, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def add(self, victim: int) -> None:
        """Another process to kill, with the first one."""
        self._victims.append(victim)

    def wait(self) -> None:
        """Until it has struck."""
        assert self._done.wait(DEADLINE), f"the leader has not written what {self._step} needs"

    def _look(self, children: list[str]) -> None:
        for name in set(children) - self._known:
            self._known.add(name)
            if self._step in ("submit", "finish"):
                self._strike()
            else:
                self._kazoo.DataWatch(f"{self._place}/{name}", self._look_at)

    def _look_at(self, data: bytes | None, stat: object) -> None:
        del stat
        if not data:
            return
        try:
            attempt = decode_node(content_of(data), StoredAttempt, where=self._place)
        except Fatal as error:
            raise AssertionError(f"what lies below {self._place} is no attempt") from error
        if attempt.canceled if self._step == "cancel" else attempt.attempt == 1:
            self._strike()

    def _strike(self) -> None:
        if not self._done.is_set():
            for victim in self._victims:
                kill_process(victim)
            self._done.set()


class UpgradeAssassin(Assassin):
    """Strikes at the moment that ZooKeeper holds an upgrade in this phase."""

    def __init__(self, record: ClusterRecord, victim: int, phase: UpgradePhase) -> None:
        super().__init__(record, victim, phase.value, LAYOUT.upgrades)
        self._phase = phase

    def _look_at(self, data: bytes | None, stat: object) -> None:
        del stat
        if data and decode_node(content_of(data), Upgrade, where=self._place).phase is self._phase:
            self._strike()


def member_of(record: ClusterRecord) -> KazooClient:
    """A client with the credentials of a local cluster."""
    (zookeeper,) = record.zookeepers
    login = (Path(zookeeper.server.directory).parent / "login").read_text().strip()
    tls = zookeeper.server.tls
    assert tls is not None, "the cluster encrypts"
    handler = EncryptedHandler(EncryptionFiles(tls.ca, None, None), session_timeout=10.0, servers=1)
    return KazooClient(hosts=zookeeper.server.connect, auth_data=[tuple(login.split(":", 1))], handler=handler)


def stored(record: ClusterRecord) -> tuple[list[str], list[str]]:
    """Jobs that a new leader would recover, and those whose result is recorded, each sorted."""
    kazoo = member_of(record)
    kazoo.start(timeout=DEADLINE)
    try:
        return sorted(kazoo.get_children(LAYOUT.jobs)), sorted(kazoo.get_children(LAYOUT.results))
    finally:
        kazoo.stop()
        kazoo.close()

"""Faults of what is stored: places that are away, a job store that is emptied, and one that two clusters use."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable

from emberkeep.base.files.ownership import OwnedByAnother
from tests.support.fakes import MemoryDisk
from tests.support.simulator.cluster import SimCluster
from tests.support.simulator.scripts import Away
from tests.support.simulator.storage.properties import LATE

Undo = Callable[[], None]
PROBLEM = "its file system is not mounted"


class StorageFaults:
    """Applies faults to what a cluster stores. ``note``: records a fault and its kind."""

    def __init__(self, cluster: SimCluster, rng: random.Random, note: Callable[[str, str], None]) -> None:
        self._cluster = cluster
        self._rng = rng
        self._note = note
        self._emptied = 0

    def kinds(self) -> dict[str, tuple[int, Callable[[], Undo | None]]]:
        """Return all faults by kind, with their weights."""
        return {
            "lose savepoints": (3, self._lose_savepoints),
            "lose blobs": (2, self._lose_blobs),
            "lose storage": (2, self._lose_storage),
            "empty store": (2, self._empty_store),
            "share store": (1, self._share_store),
        }

    def heal(self) -> None:
        """Undo all faults. The caller starts the JobManager."""
        self._find_savepoints()
        self._find_storage()
        self._give_back()

    def _lose_savepoints(self) -> Undo:
        """Take the file system of savepoints away: calls fail, or hang until it is back."""
        away = self._rng.choice((Away.FAILS, Away.HANGS))
        self._cluster.truth.savepoints_away = away
        self._note(f"takes the savepoints away: each call {away.value}", "lose savepoints")
        return self._find_savepoints

    def _find_savepoints(self) -> None:
        self._cluster.truth.savepoints_away = Away.NOT

    def _lose_blobs(self) -> Undo | None:
        if not self._cluster.plan.files:
            return None
        self._cluster.blobs.away = True
        self._note("takes the HA store of BLOBs away", "lose blobs")
        return self._find_blobs

    def _find_blobs(self) -> None:
        self._cluster.blobs.away = False

    def _lose_storage(self) -> Undo:
        """Take the storage directory away, with graphs, BLOBs and savepoints."""
        cluster = self._cluster
        cluster.storage.lose(PROBLEM)
        cluster.store.disk.away = cluster.blobs.away = True
        cluster.truth.savepoints_away = self._rng.choice((Away.FAILS, Away.HANGS))
        self._note("takes the storage away", "lose storage")
        return self._find_storage

    def _find_storage(self) -> None:
        cluster = self._cluster
        cluster.storage.find()
        for disk in (cluster.store.disk, cluster.store.own):
            if disk is not None:
                disk.away = False
        self._find_blobs()
        self._find_savepoints()

    def _empty_store(self) -> Undo | None:
        """Start the JobManager again over an emptied job store, until an operator puts the lost one back."""
        cluster = self._cluster
        leader = cluster.jm_process
        if leader is None or not leader.alive or cluster.store.own is not None:
            return None
        self._emptied += 1
        self._note("empties the job store", "empty store")
        cluster.machines.kill(leader)
        cluster.store.replace(
            MemoryDisk(
                epoch=self._rng.choice((0, 50)), lineage=f"emptied {self._emptied}", away=cluster.store.disk.away
            )
        )
        # Later than anything that the leader before has said is on its way.
        cluster.loop.call_later(LATE + 0.5, cluster.start_job_manager, context=contextvars.Context())

        def undo() -> None:
            self._give_back()
            cluster.start_job_manager()

        return undo

    def _give_back(self) -> None:
        cluster = self._cluster
        if cluster.store.own is not None:
            if cluster.jm_process is not None and cluster.jm_process.alive:
                cluster.machines.kill(cluster.jm_process)
            cluster.store.give_back()

    def _share_store(self) -> None:
        """Start a second cluster by mistake over the storage and, in half of all cases, over the job store."""
        cluster, leader = self._cluster, self._cluster.jm_process
        store = cluster.store
        if leader is None or not leader.alive or store.leader is not leader or store.away_since is not None:
            return
        if not cluster.storage.is_owned or self._rng.random() < 0.5:
            self._note("starts another cluster over the job store", "share store")
            cluster.start_intruder()
            return
        self._note("starts another cluster over the storage", "share store")
        try:
            cluster.storage.settle("the store of another cluster", "another cluster")
        except OwnedByAnother as error:
            cluster.history.judged("y")
            cluster.history.count("another cluster refused by the storage")
            if not error.hint:
                cluster.history.violate("y", f"another cluster is refused without advice: {error}")
        else:
            cluster.history.violate("y", "another cluster uses the storage")

"""A cluster that is lost with all its machines, and what survives of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.zookeepers import Ensemble


class Drill:
    """A cluster whose storage and savepoints are on other machines than its processes.

    ``zookeepers``: how many servers have its job store, on machines of their own with their data at ``servers``; 0: it
    is a file of the only JobManager.
    """

    def __init__(self, shell: Shell, place: Path, servers: Path, zookeepers: int) -> None:
        self.cluster = Cluster(shell)
        self.shell = shell
        self._servers = servers
        self._zookeepers = zookeepers
        self._ensembles: list[Ensemble] = []
        self.storage = place / "storage"
        self.savepoints = place / "savepoints"
        self.backup = place / "backup.tar"

    def found_ensemble(self) -> None:
        """Start ZooKeeper servers that know nothing."""
        if self._zookeepers:
            self._ensembles.append(Ensemble(self._servers / str(len(self._ensembles)), self._zookeepers))
            asyncio.run(self._ensembles[-1].start())

    def lose_ensemble(self) -> None:
        for ensemble in self._ensembles:
            ensemble.stop()

    def settings(self) -> tuple[str, ...]:
        settings = {
            "high-availability.storageDir": str(self.storage),
            "execution.checkpointing.savepoint-dir": str(self.savepoints),
        }
        if self._ensembles:
            settings |= {"high-availability.type": "zookeeper", "high-availability.cluster-id": "drill"}
            settings["high-availability.zookeeper.quorum"] = self._ensembles[-1].hosts
        return tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))

    def up(self, *more: str, slots: int = 1) -> None:
        shape = ("--task-managers", "1", "--slots", str(slots), "--memory", f"{4 * slots}g")
        self.cluster.up(*shape, *QUICK, *more, *self.settings())

    def lose_all_machines(self) -> None:
        """Every process, and every directory that is not on the storage."""
        self.shell.traces.kill()
        until(lambda: not self.shell.traces.processes(), "nothing of the old cluster is alive")
        self.lose_ensemble()
        shutil.rmtree(self.shell.state)
        shutil.rmtree(self.shell.traces.temporary)
        self.shell.traces.temporary.mkdir()

    def move(self, place: Path) -> tuple[Path, ...]:
        """Let storage, savepoints and state be below ``place`` from now on, and return where they were."""
        old = self.storage, self.savepoints, self.shell.state
        place.mkdir()
        self.storage, self.savepoints = place / "the storage", place / "the savepoints"
        for source, target in zip(old[:2], (self.storage, self.savepoints), strict=True):
            if source.exists():
                source.rename(target)
        self.shell.environment["XDG_STATE_HOME"] = str(place / "state")
        self.shell.state = place / "state" / "emberkeep"
        return old

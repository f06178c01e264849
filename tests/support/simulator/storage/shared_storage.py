"""The storage that all processes of a simulated cluster share: it may be away, and it belongs to somebody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, kept_after
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobs.leftovers import Kind, Periods, stages, with_periods_restarted

INTERVAL = 10.0  # seconds between two inspections
# Much shorter than the defaults, so that what is taken for needless is deleted while the world is watched.
PERIODS = Periods(unknown_ms=15_000, ended_ms=10_000, event_logs_ms=10_000, damaged_ms=3_600_000)


class _Confirming(Protocol):
    async def confirm(self) -> None: ...


class SimStorage:
    """Implements the JobManager's SharedStorage.

    ``owned``: whom it belongs to is decided by the real ownership records, in a directory of the real file system.
    """

    def __init__(self, now_ms: Callable[[], int], *, owned: bool) -> None:
        self.problem, self.problem_since_ms = "", 0
        self.was_away = False
        self._now_ms = now_ms
        self._directory = TemporaryDirectory(prefix="emberkeep-simulated-") if owned else None
        self._origins: dict[str, str] = {}  # what each job store has recorded about its storage, by its identity

    async def expect(self) -> None:
        """See SharedStorage."""

    def lose(self, problem: str) -> None:
        self.problem, self.problem_since_ms = problem, self._now_ms()
        self.was_away = True

    def find(self) -> None:
        """Make it available again."""
        self.problem, self.problem_since_ms = "", 0

    @property
    def is_owned(self) -> bool:
        return self._directory is not None

    def settle(self, identity: str, cluster: str = "cluster") -> ClusterStorage | None:
        """Open it for a JobManager, as at its start. ``identity``: of its job store. ``cluster``: its state directory.

        Return None if nobody keeps records. Raises what ``ClusterStorage.settle`` raises.
        """
        if self._directory is None:
            return None
        storage = ClusterStorage(self._layout(cluster), self._now_ms)
        origin = StoreOrigin(identity=identity, storage=self._origins.get(identity, ""), was_led=False)
        self._origins[identity] = kept_after(origin, storage.settle(origin))
        return storage

    def _layout(self, cluster: str = "cluster") -> StateLayout:
        assert self._directory is not None, "it keeps records"
        root = Path(self._directory.name)
        texts = {STORAGE_DIRECTORY.key: str(root / "storage")}
        return StateLayout(root / cluster, Configuration().with_texts(texts, "simulation"))

    def put(self, job_id: JobId) -> None:
        """Write a job's checkpoints."""
        if self._directory is not None:
            (self._layout().checkpoints / job_id / "query").mkdir(parents=True, exist_ok=True)

    def has(self, job_id: JobId) -> bool:
        """True if the job's checkpoints are there, or nobody writes any.

        Raises RuntimeError if another program has removed the directory of this simulation.
        """
        if self._directory is None:
            return True
        if not Path(self._directory.name).exists():
            raise RuntimeError(f"another program has removed {self._directory.name}, which this simulation uses")
        return (self._layout().checkpoints / job_id / "query").exists()

    def close(self) -> None:
        """Remove the directory."""
        if self._directory is not None:
            self._directory.cleanup()


async def keep(
    storage: ClusterStorage, store: _Confirming, service: JobManagerService, now_ms: Callable[[], int]
) -> None:
    """Delete the checkpoints that no job needs, as the storage's keeper does in a JobManager process."""
    await service.ready()
    while True:
        await asyncio.sleep(INTERVAL)
        with contextlib.suppress(EmberkeepError):
            storage.require()
            found, marks = storage.data.directories(), storage.marks()
            if service.gateway.strangers():
                marks = with_periods_restarted(marks, now_ms())
            await store.confirm()
            known = {job.job_id: job.status for job in await service.gateway.jobs()}
            decided = stages(found, known, marks, now_ms(), PERIODS)
            storage.write_marks(decided.marks)
            for mark in decided.due:
                if mark.kind is Kind.CHECKPOINTS:
                    storage.data.remove((mark.kind, mark.job_id))

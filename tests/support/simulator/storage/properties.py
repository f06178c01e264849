"""Properties (y) and (z) of a simulated cluster: what is stored while its place is away, or is somebody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobResult
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_managers import AllocateSlot, StartDriver, StopDriver, StopTaskManager
from emberkeep.taskmanager.ports import DriverKey
from tests.support.simulator.cluster import SimCluster
from tests.support.simulator.machines import Process

ORDERS = (StartDriver, StopDriver, AllocateSlot, StopTaskManager)
LATE = 2.0  # seconds after which nothing is on its way any more that the leader before has said


@dataclass
class StoredThings:
    """Watches what is stored. ``attempts``: the newest attempt of each job. ``results``: of all that have ended."""

    cluster: SimCluster
    attempts: Mapping[JobId, int]
    results: Mapping[JobId, JobResult]
    _abandoned: int = 0  # attempts that were looked at
    _ending: set[int] = field(default_factory=set)  # drivers that were being ended when the store was lost, by pid
    _replaced_at: float = field(default=float("inf"))

    def __post_init__(self) -> None:
        cluster = self.cluster
        cluster.on_order.append(self._ordered)
        cluster.room.on_kill.append(self._killed)
        cluster.store.on_retention.append(self._retained)
        cluster.store.on_result.append(self._ended)

    def tick(self) -> None:
        """Check what is stored now. Call this often."""
        store = self.cluster.store
        if store.own is None:
            self._replaced_at = float("inf")
        elif self._replaced_at == float("inf"):
            self._replaced_at = self.cluster.loop.time()
        self._check_abandoned()
        if self.cluster.storage.is_owned:
            for job_id in store.jobs:
                if not self.cluster.storage.has(job_id):
                    self.cluster.history.violate("y", f"the checkpoints of {job_id[:8]}, which has not ended, are gone")

    def made(self, job_id: JobId, pointers: JobPointers) -> None:
        """Check the savepoints that the job store has for a job."""
        for savepoint in pointers.savepoints:
            self.cluster.history.judged("z", job_id)
            if not self.cluster.truth.savepoints[savepoint.trigger_id]:
                self.cluster.history.violate("z", f"{savepoint.path} of {job_id[:8]} is recorded, and was not written")

    def _ordered(self, _: Process, request: Message) -> None:
        if self.cluster.store.own is not None and isinstance(request, ORDERS):
            self.cluster.history.violate("y", f"{type(request).__name__} from a JobManager with an emptied job store")

    def _killed(self, process: Process) -> None:
        """Check (y) when a task manager ends a driver."""
        if not isinstance(process.key, DriverKey):
            return
        if self.cluster.loop.time() <= self._replaced_at + LATE:
            self._ending.add(process.pid)
        if process.pid in self._ending:
            return
        self.cluster.history.judged("y", process.key.job_id)
        if self._is_valid(process.key.job_id, process.key.attempt) and process.outcome is None:
            self.cluster.history.violate("y", f"{process.name} is ended, and the job store is only lost")

    def _check_abandoned(self) -> None:
        abandoned = self.cluster.truth.abandoned
        if len(abandoned) == self._abandoned:
            return
        for (job_id, attempt), seconds in list(abandoned.items())[self._abandoned :]:
            if seconds > self._replaced_at + LATE and self._is_valid(job_id, attempt):
                self.cluster.history.violate("y", f"attempt {attempt} of {job_id[:8]} ends, and its store is only lost")
        self._abandoned = len(abandoned)

    def _is_valid(self, job_id: JobId, attempt: int) -> bool:
        return attempt == self.attempts.get(job_id) and job_id not in self.results

    def _retained(self, job_id: JobId, _: frozenset[str], gone: frozenset[str]) -> None:
        for path in gone:
            self.cluster.history.judged("z", job_id)
            if not self.cluster.truth.deleted[path.rpartition("/")[2]]:
                self.cluster.history.violate("z", f"{path} of {job_id[:8]} is recorded as deleted, and is there")

    def _ended(self, result: JobResult) -> None:
        if self.cluster.storage.was_away:
            self.cluster.history.judged("z", result.job_id)
            if result.keeps_data:
                self.cluster.history.violate("z", f"{result.name} fails, because data that were away count as damaged")

"""The lost task manager instances that each job's JobMaster must learn of."""

from __future__ import annotations

from emberkeep.base.ids import InstanceId, JobId

LOST_KEPT = 256  # lost task managers to remember for each job


class LostInstances:
    """For each job, the lost instances where it held slots, oldest first, at most LOST_KEPT."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, dict[InstanceId, None]] = {}

    def add(self, job_id: JobId, instance: InstanceId) -> None:
        lost = self._by_job.setdefault(job_id, {})
        lost[instance] = None
        while len(lost) > LOST_KEPT:
            del lost[next(iter(lost))]

    def of(self, job_id: JobId) -> tuple[InstanceId, ...]:
        return tuple(self._by_job.get(job_id, ()))

    def forget(self, job_id: JobId) -> None:
        """Forget which instances a job has lost. Called when the job has ended or its next attempt begins."""
        self._by_job.pop(job_id, None)

    def returned(self, instance: InstanceId) -> None:
        """Note that an instance registered again, so no job has lost it."""
        for lost in self._by_job.values():
            lost.pop(instance, None)

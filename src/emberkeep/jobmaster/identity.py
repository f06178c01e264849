"""Which attempt of which job a JobMaster leads, and its address."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt and its process. ``task_manager`` started this driver; ``pid`` is the driver's process id.

    ``lineage``, ``epoch``: the job store and the epoch of the leader that ordered the start; "" and 0 if unknown.
    """

    job_id: JobId
    attempt: int
    address: str
    task_manager: TaskManagerId
    pid: int
    lineage: str = ""
    epoch: int = 0

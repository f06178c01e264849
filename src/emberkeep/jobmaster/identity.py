"""Which attempt of which job a JobMaster leads, and where it is reached."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """``task_manager`` started this driver; ``pid`` is that of its process."""

    job_id: JobId
    attempt: int
    address: str
    task_manager: TaskManagerId
    pid: int

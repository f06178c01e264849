"""What was read from a job store for a backup, whichever kind of store it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.adapters.job_store.graph_files import StateHandle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.upgrades.model import Upgrade


@dataclass(frozen=True)
class CopiedJob:
    """The records of a job that has to be recovered. ``problem``: why one of them cannot be read; "" if all can be."""

    job_id: JobId
    handle: StateHandle | None
    attempt: StoredAttempt
    pointers: JobPointers = JobPointers()  # noqa: RUF009 - frozen
    problem: str = ""


@dataclass(frozen=True)
class StoreCopy:
    """The records of a job store as they were at one moment, see ``docs/production/backup.md``.

    ``identity``: names the store. ``storage_id``: of the storage that it was used with. ``member``: the backup's file
    with all records. ``results``: results in files of their own. ``addresses``: where JobManagers listened.
    """

    member: str
    identity: str
    storage_id: str
    epoch: int
    jobs: tuple[CopiedJob, ...]
    upgrades: tuple[Upgrade, ...] = ()
    results: tuple[ResultFile, ...] = ()
    addresses: tuple[str, ...] = field(default=())

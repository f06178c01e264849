"""What was read from a job store for a backup, whichever kind of store it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from emberkeep.adapters.job_store.graph_files import StateHandle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.base.errors import Fatal, NewerFormat
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
    ``unreadable``: upgrades whose records cannot be read, and why.
    """

    member: str
    identity: str
    storage_id: str
    epoch: int
    jobs: tuple[CopiedJob, ...]
    upgrades: tuple[Upgrade, ...] = ()
    unreadable: tuple[str, ...] = ()
    results: tuple[ResultFile, ...] = ()
    addresses: tuple[str, ...] = field(default=())


def readable_upgrades(
    stored: Iterable[tuple[str, bytes]], decode: Callable[[bytes, str], Upgrade]
) -> tuple[tuple[Upgrade, ...], tuple[str, ...]]:
    """Return the upgrades in records, and why the others cannot be read. A leader leaves these out, too.

    ``stored``: each record with its place. ``decode``: returns the upgrade in a record, given its place. Raises
    NewerFormat.
    """
    found, unreadable = [], []
    for where, data in stored:
        try:
            found.append(decode(data, where))
        except NewerFormat:
            raise
        except Fatal as error:
            unreadable.append(error.message)
    return tuple(found), tuple(unreadable)

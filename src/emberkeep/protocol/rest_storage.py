"""REST bodies about the shared storage."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest import Kebab, Millis
from emberkeep.protocol.rest_cluster import TaskManagerOfAnotherStore


class StorageData(Kebab, frozen=True, kw_only=True):
    """Data of one job, needed by no job any more.

    ``kind``: checkpoints, blobs, graph, result, or damaged (data kept from a job that failed because of it). ``known``:
    the job is known to have ended; otherwise the job store does not know the job. ``marked`` and ``due``: when the data
    was marked and when it will be removed; -1 if it is not marked or the time is not known.
    """

    jobid: JobId
    kind: str
    known: bool
    marked: Millis
    due: Millis


class StorageInfo(Kebab, frozen=True, kw_only=True):
    """The shared storage.

    ``owned``: it belongs to this cluster's job store, and data that no job needs is deleted in stages; otherwise
    ``problem`` says why nothing is deleted there, or in ``blobs``. ``blobs``: location of BLOBs, "" if they are in the
    storage. ``used-by``: task managers of another job store, whose jobs may use data in the storage. The waiting
    periods for data of unknown jobs start over while such a task manager is in contact.
    """

    location: str
    cluster: str
    owned: bool
    problem: str
    hint: str
    data: list[StorageData]
    blobs: str = ""
    used_by: tuple[TaskManagerOfAnotherStore, ...] = ()

"""REST bodies about the shared storage."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest import Kebab, Millis, TaskManagerOfAnotherStore


class StorageData(Kebab, frozen=True, kw_only=True):
    """Data of one job that no job needs. ``kind``: checkpoints, blobs, graph, result, or damaged (what is kept of a job
    that failed because of it). ``known``: the job is known to have ended; else the job store does not know the job.
    ``marked``, ``due``: since when it is marked and when it will be removed; -1 while it is not marked, or not known.
    """

    jobid: JobId
    kind: str
    known: bool
    marked: Millis
    due: Millis


class StorageInfo(Kebab, frozen=True, kw_only=True):
    """The shared storage. ``owned``: it belongs to this cluster's job store, and what no job needs is deleted in
    stages; else ``problem`` says why nothing is deleted there, or in ``blobs``: where BLOBs lie, "" for in the storage.
    ``used_by``: task managers of another job store, whose jobs may use what lies there: periods of data of unknown jobs
    begin anew while one is heard of.
    """

    location: str
    cluster: str
    owned: bool
    problem: str
    hint: str
    data: list[StorageData]
    blobs: str = ""
    used_by: tuple[TaskManagerOfAnotherStore, ...] = ()

"""REST bodies about the shared storage."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest import Kebab, Millis
from emberkeep.protocol.rest_cluster import TaskManagerOfAnotherStore


class StorageData(Kebab, frozen=True, kw_only=True):
    """Data that one job has left behind and that no job needs any longer.

    ``kind``: checkpoints, event-logs, logs (with the job's events), blobs, graph, result, or damaged (data kept because
    the job failed on it). ``known``: true if the job is known to have ended, false if the job store has no record of
    the job. ``marked`` and ``due``: when the data was marked and when it will be removed; -1 if it is not marked or the
    time is not known.
    """

    jobid: JobId
    kind: str
    known: bool
    marked: Millis
    due: Millis


class StorageInfo(Kebab, frozen=True, kw_only=True):
    """The shared storage.

    ``owned``: true if the storage and ``blobs`` belong to this cluster's job store. Data that no job needs is then
    deleted in stages. If ``owned`` is false, ``problem`` says why nothing is deleted, or why only BLOBs are not
    deleted. ``blobs``: location of BLOBs; "" if they are in the storage. ``used-by``: task managers of another job
    store, whose jobs may use data in the storage. As long as such a task manager is in contact, the waiting periods for
    data of unknown jobs are reset again and again.
    """

    location: str
    cluster: str
    owned: bool
    problem: str
    hint: str
    data: list[StorageData]
    blobs: str = ""
    used_by: tuple[TaskManagerOfAnotherStore, ...] = ()

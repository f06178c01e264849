"""Works out how each job in a backup continues in the new cluster, and what its records are there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emberkeep.adapters.backups.contents import CopiedJob, StoreCopy
from emberkeep.adapters.backups.job_files import decode_graph
from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.graph_files import GRAPH_KIND, GRAPH_VERSION, StateHandle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.backups.continuation import (
    CheckpointSeen,
    Continuation,
    From,
    PlannedJob,
    SavepointSeen,
    Sight,
    continuation,
    moved_pointers,
    pointers_after,
)
from emberkeep.backups.model import ATTEMPTS_SKIPPED, BackedUpJob, BackupManifest
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.places import path_of, scheme_of
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.files.durable import encode_record
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.lifecycle.manifest import MANIFEST_NAME, manifest_sha256
from emberkeep.lifecycle.model import Procedure

_COMMITS = "commits"


@dataclass(frozen=True)
class RestoredJob:
    """A job as it continues. ``graph``: the member with its graph; "" if the backup lacks it."""

    copied: CopiedJob
    graph: str
    plan: PlannedJob
    attempt: StoredAttempt
    pointers: JobPointers

    def graph_and_handle(self, read: Callable[[str], bytes]) -> tuple[bytes, StateHandle] | None:
        """Return the bytes of the job's graph and the handle that leads to it; None if the backup lacks the graph."""
        if not self.graph or self.copied.handle is None:
            return None
        data, handle = read(self.graph), self.copied.handle
        savepoint = self.plan.continuation.savepoint
        if not savepoint:
            return data, handle
        graph = msgspec.structs.replace(decode_graph(data, self.graph), savepoint=savepoint)
        data = encode_record(GRAPH_KIND, GRAPH_VERSION, msgspec.json.encode(graph))
        sha256 = hashlib.sha256(data).hexdigest()
        return data, msgspec.structs.replace(handle, size=len(data), sha256=sha256, graph_version=GRAPH_VERSION)


def restored_jobs(manifest: BackupManifest, copy: StoreCopy, layout: StateLayout) -> list[RestoredJob]:
    """Return all jobs of a backup as they continue in the cluster with this layout. Looks at their checkpoints."""
    described = {job.job_id: job for job in manifest.jobs}
    places = [
        (manifest.checkpoints, str(layout.checkpoints)),
        (manifest.savepoints, str(layout.savepoints)),
        (manifest.storage, str(layout.storage)),
    ]
    return [_restored(job, described[job.job_id], places) for job in copy.jobs if job.job_id in described]


def _restored(job: CopiedJob, described: BackedUpJob, places: Sequence[tuple[str, str]]) -> RestoredJob:
    pointers = moved_pointers(job.pointers, places)
    attempt = reset_attempt(job.attempt)
    if described.problem:
        chosen = Continuation(start=From.NOTHING, notes=(f"the backup is not complete: {described.problem}",))
    else:
        chosen = continuation(
            [_look_at(each) for each in pointers.queries], [_look_at_savepoint(each) for each in pointers.savepoints]
        )
    plan = PlannedJob(
        job_id=job.job_id,
        name=described.name,
        attempt=attempt.attempt + 1,
        continuation=chosen,
    )
    return RestoredJob(job, described.graph, plan, attempt, pointers_after(pointers, chosen))


def reset_attempt(stored: StoredAttempt) -> StoredAttempt:
    """Return the record of an attempt that is lost with its cluster.

    Its number exceeds every number that the lost cluster is likely to have used, so that processes of that cluster
    which are still alive have older attempts. A planned move ends with the attempt.
    """
    procedure = stored.procedure
    if procedure is not None and procedure.procedure is Procedure.MOVE:
        procedure = None
    return msgspec.structs.replace(
        stored,
        attempt=stored.attempt + ATTEMPTS_SKIPPED,
        home=None,
        procedure=procedure,
        over=not stored.stopped,
    )


def _look_at(pointer: QueryCheckpoint) -> CheckpointSeen:
    place = _on_disk(pointer.location)
    if place is None:
        return CheckpointSeen(pointer=pointer, sight=Sight.UNKNOWN)
    directory = place / _COMMITS
    try:
        names = FilePatience().run(directory, lambda: [path.name for path in directory.iterdir()])
    except (FileNotFoundError, NotADirectoryError):
        return CheckpointSeen(pointer=pointer, sight=Sight.MISSING)
    except (OSError, EmberkeepError):
        return CheckpointSeen(pointer=pointer, sight=Sight.UNKNOWN)
    newest = max((int(name) for name in names if name.isdecimal()), default=-1)
    return CheckpointSeen(pointer=pointer, sight=Sight.FOUND, newest=newest)


def _look_at_savepoint(pointer: SavepointPointer) -> SavepointSeen:
    place = _on_disk(pointer.path)
    if place is None:
        return SavepointSeen(pointer=pointer, sight=Sight.UNKNOWN)
    if pointer.retired_ms:  # some of its files may have been deleted
        return SavepointSeen(pointer=pointer, sight=Sight.MISSING)
    try:
        data = FilePatience().read(place / MANIFEST_NAME)
    except Absent:
        return SavepointSeen(pointer=pointer, sight=Sight.MISSING)
    except EmberkeepError:
        return SavepointSeen(pointer=pointer, sight=Sight.UNKNOWN if place.is_dir() else Sight.MISSING)
    whole = manifest_sha256(data) == pointer.manifest_sha256
    return SavepointSeen(pointer=pointer, sight=Sight.FOUND if whole else Sight.MISSING)


def _on_disk(location: str) -> Path | None:
    """Return the directory that a location names; None if only Hadoop's file systems reach it."""
    try:
        return Path(path_of(location) if scheme_of(location) == "file" else location) if _is_local(location) else None
    except ValueError:
        return None


def _is_local(location: str) -> bool:
    return scheme_of(location) in ("", "file")

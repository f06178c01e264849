"""Works out how each job in a backup continues in the new cluster, and what its records are there."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from emberkeep.adapters.backups.contents import CopiedJob, StoreCopy
from emberkeep.adapters.backups.job_files import decode_graph
from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.graph_files import GRAPH_KIND, GRAPH_VERSION, StateHandle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.backups.continuation import (
    CheckpointSeen,
    Continuation,
    From,
    PlannedJob,
    SavepointSeen,
    Sight,
    continuation,
    pointers_after,
)
from emberkeep.backups.model import ATTEMPTS_SKIPPED, BackedUpJob, BackupManifest
from emberkeep.backups.moved_places import MovedPlaces
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.configuration.places import path_of, scheme_of
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.ids import JobId
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

    def graph_and_handle(self, read: Callable[[str], bytes], places: MovedPlaces) -> tuple[bytes, StateHandle] | None:
        """Return the bytes of the job's graph and the handle that leads to it; None if the backup lacks the graph."""
        if not self.graph or self.copied.handle is None:
            return None
        data, handle = read(self.graph), self.copied.handle
        graph = decode_graph(data, self.graph)
        now = places.graph(graph)
        if savepoint := self.plan.continuation.savepoint:
            now = msgspec.structs.replace(now, savepoint=savepoint)
        if now == graph:
            return data, handle
        data = encode_over(GRAPH_KIND, GRAPH_VERSION, now, data)
        sha256 = hashlib.sha256(data).hexdigest()
        return data, msgspec.structs.replace(handle, size=len(data), sha256=sha256, graph_version=GRAPH_VERSION)


@dataclass(frozen=True)
class RestoredStore:
    """What the new job store holds. ``results``: files of large results, by their names."""

    identity: str
    storage_id: str
    jobs: Sequence[RestoredJob]
    handles: Mapping[JobId, StateHandle]
    places: MovedPlaces
    results: Mapping[str, ResultFile] = field(default_factory=dict)


def moved_places(manifest: BackupManifest, layout: StateLayout) -> MovedPlaces:
    """Return where the directories of the lost cluster are in the one with this layout."""
    before = manifest.savepoint_directory.rstrip("/")
    now = layout.configuration[SAVEPOINT_DIRECTORY].rstrip("/") or str(layout.savepoints)
    places = [
        *([(before, now)] if before else []),
        (manifest.checkpoints, str(layout.checkpoints)),
        (manifest.savepoints, str(layout.savepoints)),
        (manifest.storage, str(layout.storage)),
    ]
    # One of them may be in another one.
    return MovedPlaces(sorted(places, key=lambda place: len(place[0]), reverse=True))


def restored_jobs(manifest: BackupManifest, copy: StoreCopy, layout: StateLayout) -> list[RestoredJob]:
    """Return all jobs of a backup as they continue in the cluster with this layout. Looks at their checkpoints."""
    described = {job.job_id: job for job in manifest.jobs}
    places = moved_places(manifest, layout)
    return [_restored(job, described[job.job_id], places) for job in copy.jobs if job.job_id in described]


def _restored(job: CopiedJob, described: BackedUpJob, places: MovedPlaces) -> RestoredJob:
    pointers = places.pointers(job.pointers)
    attempt = reset_attempt(job.attempt, places)
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


def reset_attempt(stored: StoredAttempt, places: MovedPlaces) -> StoredAttempt:
    """Return the record of an attempt that is lost with its cluster.

    Its number exceeds every number that the lost cluster is likely to have used, so that processes of that cluster
    which are still alive have older attempts. A planned move ends with the attempt.
    """
    procedure = stored.procedure
    if procedure is not None and procedure.procedure is Procedure.MOVE:
        procedure = None
    if procedure is not None:
        procedure = places.request(procedure)
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
        return SavepointSeen(pointer=pointer, sight=_sight_without_manifest(place))
    whole = manifest_sha256(data) == pointer.manifest_sha256
    return SavepointSeen(pointer=pointer, sight=Sight.FOUND if whole else Sight.MISSING)


def _sight_without_manifest(place: Path) -> Sight:
    """Return what a savepoint is whose manifest cannot be read now."""
    try:
        mode = FilePatience().run(place, place.stat).st_mode  # is_dir() may take any error for "no"
    except (FileNotFoundError, NotADirectoryError):
        return Sight.MISSING
    except (OSError, EmberkeepError):
        return Sight.UNKNOWN
    return Sight.UNKNOWN if stat.S_ISDIR(mode) else Sight.MISSING


def _on_disk(location: str) -> Path | None:
    """Return the directory that a location names; None if only Hadoop's file systems reach it."""
    try:
        return Path(path_of(location) if scheme_of(location) == "file" else location) if _is_local(location) else None
    except ValueError:
        return None


def _is_local(location: str) -> bool:
    return scheme_of(location) in ("", "file")

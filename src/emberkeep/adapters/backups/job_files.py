"""Copies the files that a job store's records lead to into a backup: graphs, BLOBs, and large results.

All of them are immutable, and the records name each by its SHA-256. So it does not matter when they are read, as long
as they still exist. A job that ended after its record was copied may have lost its files; the caller copies the records
again then.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from emberkeep.adapters.backups.contents import CopiedJob, StoreCopy
from emberkeep.adapters.backups.names import blob_member, graph_member, result_member
from emberkeep.adapters.backups.staging import Staging
from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.graph_files import GRAPH_KIND, GRAPH_VERSION
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import decode_record
from emberkeep.base.files.errors import is_bad_place
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent
from emberkeep.blobs.ports import BlobStorage
from emberkeep.jobs.model import JobGraph


@dataclass
class CollectedFiles:
    """``graphs``: by job. ``blobs``: owners and digests. ``members``: names in the backup. ``problems``: by job.

    ``of_upgrades``: what upgrades lack that are under way, and those whose records are damaged.
    """

    graphs: dict[JobId, JobGraph] = field(default_factory=dict)
    blobs: list[tuple[JobId, str]] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    problems: dict[JobId, str] = field(default_factory=dict)
    of_upgrades: list[str] = field(default_factory=list)


class JobFiles:
    """The files of one cluster: graphs and results in ``directory``, BLOBs in ``blobs``."""

    def __init__(self, directory: Path, blobs: BlobStorage, staging: Staging) -> None:
        self._directory = directory
        self._blobs = blobs
        self._staging = staging
        self._patience = FilePatience()

    async def collect(self, copy: StoreCopy) -> CollectedFiles:
        """Copy all files. What is missing, damaged or in a bad place of its disk becomes the problem of its job.

        Raises Unavailable or RetryLater if the storage does not answer, NewerFormat, OSError.
        """
        found = CollectedFiles()
        for job in copy.jobs:
            try:
                graph = await asyncio.to_thread(self._graph, job, found)
                await self._collect_blobs(job.job_id, graph, found)
            except NewerFormat:
                raise
            except (Absent, Damaged, Unavailable) as error:
                found.problems[job.job_id] = _lasting(error).message
        found.of_upgrades += [f"an upgrade: its record is copied as it is: {each}" for each in copy.unreadable]
        for upgrade in copy.upgrades:
            for owner, wanted in ((upgrade.new_id, upgrade.new), (upgrade.back_id, upgrade.back)):
                if wanted is not None:
                    try:
                        await self._collect_blobs(owner, wanted, found)
                    except (Absent, Damaged, Unavailable) as error:
                        found.of_upgrades.append(f"the upgrade of job {upgrade.job_id}: {_lasting(error).message}")
        for result in copy.results:
            await asyncio.to_thread(self._result, result.location, result.sha256, found)
        return found

    def _graph(self, job: CopiedJob, found: CollectedFiles) -> JobGraph:
        if job.handle is None:
            raise Damaged(job.problem)
        location = Path(job.handle.location).name
        path, member = self._directory / location, graph_member(location)
        try:
            data = self._patience.read(path)
        except Absent as error:
            raise Absent(f"its job graph: {error.message}") from None
        if len(data) != job.handle.size or hashlib.sha256(data).hexdigest() != job.handle.sha256:
            raise Damaged(f"its job graph {path} is damaged: its bytes differ from what was written")
        graph = decode_graph(data, str(path))
        self._staging.write(member, data)
        found.graphs[job.job_id] = graph
        found.members.append(member)
        return graph

    def _result(self, location: str, sha256: str, found: CollectedFiles) -> None:
        """Copy the file of a large result. Without it, the job's outline is shown, so a lost one is left out."""
        try:
            data = self._patience.read(self._directory / Path(location).name)
        except (Absent, Unavailable) as error:
            _lasting(error)
            return
        if hashlib.sha256(data).hexdigest() == sha256:
            member = result_member(Path(location).name)
            self._staging.write(member, data)
            found.members.append(member)

    async def _collect_blobs(self, owner: JobId, graph: JobGraph, found: CollectedFiles) -> None:
        for artefact in graph.artefacts:
            member = blob_member(artefact.sha256)
            path = self._staging.path(member)
            if not path.exists():
                await self._fetch(owner, artefact.sha256, path)
            found.members.append(member)
            found.blobs.append((owner, artefact.sha256))

    async def _fetch(self, owner: JobId, sha256: str, path: Path) -> None:
        temporary = path.with_name(f"{path.name}.fetched")
        temporary.unlink(missing_ok=True)
        await self._blobs.fetch(owner, permanent(sha256), temporary)
        with temporary.open("rb") as file:
            actual = await asyncio.to_thread(lambda: hashlib.file_digest(file, "sha256").hexdigest())
        if actual != sha256:
            raise Damaged(f"the file {sha256} of job {owner} is damaged in {self._blobs.location}")
        temporary.rename(path)


def _lasting(error: EmberkeepError) -> EmberkeepError:
    """Return ``error`` if another try would probably fail in the same way. Raises it if the storage may answer later.

    A server that is away can look like a bad place of a disk, so the whole backup is tried once more in any case.
    """
    if isinstance(error, Unavailable) and not is_bad_place(error):
        raise error
    return error


def require_directory(path: Path) -> None:
    """Raise Unavailable unless the directory of graphs can be read: then a missing graph is missing for certain."""
    try:
        FilePatience().run(path, lambda: next(path.iterdir(), None))
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read now: {error.strerror or error}",
            hint="check that the shared storage is mounted here",
        ) from error


def decode_graph(data: bytes, where: str) -> JobGraph:
    """Return the job graph in a record. Raises Damaged, NewerFormat."""
    try:
        return from_json(decode_record(data, GRAPH_KIND, GRAPH_VERSION, where=where), JobGraph)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None

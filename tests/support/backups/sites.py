"""Embedded clusters without processes, whose job store and files are backed up and restored."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from emberkeep.adapters.backups.reading import open_backup
from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.backups.continuation import RestorePlan
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.configuration.places import with_resolved_places
from emberkeep.base.configuration.values import Configuration
from emberkeep.blobs.model import permanent
from emberkeep.daemons.backups.restoring import RestoreRequest, restore
from emberkeep.jobs.checkpoints import QueryCheckpoint, SavepointPointer
from emberkeep.jobs.model import Artefact, ArtefactRole, JobGraph
from emberkeep.lifecycle.manifest import MANIFEST_NAME
from tests.support.contracts.job_store import job

CODE = b"print('a job')\n"
CODE_SHA256 = hashlib.sha256(CODE).hexdigest()


class EmbeddedSite:
    """A state directory and a storage, and places for BLOBs and savepoints outside of it, if they are named."""

    def __init__(self, root: Path, storage: Path, *, blobs: Path | None = None, savepoints: str | None = None) -> None:
        texts = {
            STATE_DIRECTORY.key: str(root),
            STORAGE_DIRECTORY.key: str(storage),
            HA_TYPE.key: "embedded",
            **({} if blobs is None else {BLOB_HA_STORAGE.key: str(blobs)}),
            **({} if savepoints is None else {SAVEPOINT_DIRECTORY.key: savepoints}),
        }
        self.configuration = with_resolved_places(Configuration().with_texts(texts, "test"))
        self.layout = StateLayout(root, self.configuration)

    def token(self) -> str:
        return load_or_create_token(self.layout.token_file)

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[EmbeddedJobStore]:
        """The job store, while a JobManager leads."""
        self.token()
        storage = ClusterStorage(self.layout, SystemClock().now_ms)
        store = EmbeddedJobStore(self.layout.job_manager / "jobs.sqlite", self.layout.graphs, storage)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def accept(self, store: EmbeddedJobStore, number: int, **changes: object) -> JobGraph:
        """Accept a job with one file."""
        script = Artefact(role=ArtefactRole.SCRIPT, name="app.py", sha256=CODE_SHA256, size=len(CODE))
        graph = job(number, artefacts=(script,), **changes)
        source = self.layout.root / "app.py"
        source.write_bytes(CODE)
        await DirectoryBlobs(Path(self.layout.ha_blobs)).put(graph.job_id, permanent(CODE_SHA256), source)
        await store.create(graph)
        return graph

    def checkpoint(self, graph: JobGraph, batches: int) -> QueryCheckpoint:
        """Commit batches to a checkpoint of the job."""
        place = self.layout.checkpoints / graph.job_id / "0"
        (place / "commits").mkdir(parents=True)
        for batch in range(batches):
            (place / "commits" / str(batch)).touch()
        return QueryCheckpoint(
            query="0",
            query_id="id",
            location=str(place),
            batch_id=batches - 1,
            triggered_ms=1,
            committed_ms=2,
        )


def made_savepoint(directory: Path, number: int) -> SavepointPointer:
    """Return the pointer to a savepoint that is made in ``directory``."""
    place = directory / str(number)
    place.mkdir(parents=True)
    data = f"manifest {number}".encode()
    (place / MANIFEST_NAME).write_bytes(data)
    return SavepointPointer(path=str(place), manifest_sha256=hashlib.sha256(data).hexdigest(), created_ms=number)


async def restored(
    site: EmbeddedSite, backup: Path, *, apply: bool = True, force: bool = False, new_token: bool = False
) -> RestorePlan:
    reader = open_backup(backup)
    try:
        request = RestoreRequest(apply=apply, force=force, new_token=new_token)
        return await restore(site.configuration, site.layout, reader, request)
    finally:
        reader.close()


def with_savepoint(graph: JobGraph, savepoint: str) -> JobGraph:
    return msgspec.structs.replace(graph, savepoint=savepoint)

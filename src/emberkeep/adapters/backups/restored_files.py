"""Writes the files of jobs from a backup to the storage: graphs, large results, BLOBs. Each step may be repeated."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emberkeep.adapters.backups.names import blob_member
from emberkeep.adapters.backups.reading import BackupReader
from emberkeep.adapters.backups.restored_jobs import RestoredJob
from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.graph_files import StateHandle
from emberkeep.backups.model import BackupManifest
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent
from emberkeep.blobs.ports import BlobStorage


class RestoredFiles:
    """The files of a backup, written to a cluster's storage."""

    def __init__(self, reader: BackupReader, manifest: BackupManifest) -> None:
        self._reader = reader
        self._manifest = manifest
        self._members = {member.name: member for member in manifest.members}

    def write_graphs(self, jobs: Sequence[RestoredJob], directory: Path) -> dict[JobId, StateHandle]:
        """Write the jobs' graphs, and return the handles that lead to them. Blocks. Raises Fatal, Unavailable."""
        handles, patience = {}, FilePatience()
        for job in jobs:
            found = job.graph_and_handle(self._reader.read)
            if found is not None:
                data, handle = found
                patience.write(directory / Path(handle.location).name, data)
                handles[job.copied.job_id] = handle
        return handles

    def write_results(self, directory: Path) -> None:
        """Write the files of large results. Blocks. Raises Fatal, Unavailable."""
        patience = FilePatience()
        for name in self._members:
            if name.startswith("results/"):
                patience.write(directory / Path(name).name, self._reader.read(name))

    async def write_blobs(self, blobs: BlobStorage) -> None:
        """Store the jobs' BLOBs. Raises what ``blobs`` raises, and BackupDamaged."""
        with tempfile.TemporaryDirectory(prefix="emberkeep-restore-") as place:
            path = Path(place) / "blob"
            for blob in self._manifest.blobs:
                await asyncio.to_thread(self._reader.extract, self._members[blob_member(blob.sha256)], path)
                await blobs.put(blob.job_id, permanent(blob.sha256), path)

"""Writes the files of jobs from a backup to the storage: graphs, large results, BLOBs. Each step may be repeated."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from emberkeep.adapters.backups.names import blob_member, result_member
from emberkeep.adapters.backups.reading import BackupReader
from emberkeep.adapters.backups.restored_jobs import RestoredJob
from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.job_store.graph_files import StateHandle
from emberkeep.adapters.job_store.result_files import ResultFile, changed_file
from emberkeep.backups.model import BackupManifest
from emberkeep.backups.moved_places import MovedPlaces
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent
from emberkeep.blobs.ports import BlobStorage


class RestoredFiles:
    """The files of a backup, written to a cluster's storage. ``places``: where the lost cluster's directories are."""

    def __init__(self, reader: BackupReader, manifest: BackupManifest, places: MovedPlaces) -> None:
        self.places = places
        self._reader = reader
        self._manifest = manifest
        self._members = {member.name: member for member in manifest.members}

    def write_graphs(self, jobs: Sequence[RestoredJob], directory: Path) -> dict[JobId, StateHandle]:
        """Write the jobs' graphs, and return the handles that lead to them. Blocks. Raises Fatal, Unavailable."""
        handles, patience = {}, FilePatience()
        for job in jobs:
            found = job.graph_and_handle(self._reader.read, self.places)
            if found is not None:
                data, handle = found
                patience.write(directory / Path(handle.location).name, data)
                handles[job.copied.job_id] = handle
        return handles

    def write_results(self, results: Iterable[ResultFile], directory: Path) -> dict[str, ResultFile]:
        """Write the files of large results, and return what leads to them, by their names. Blocks.

        Those that the backup lacks are left out. Raises Fatal, Unavailable.
        """
        written, patience = {}, FilePatience()
        for each in results:
            name = Path(each.location).name
            if result_member(name) in self._members:
                file, data = changed_file(each, self._reader.read(result_member(name)), self.places.result)
                patience.write(directory / name, data)
                written[each.location] = file
        return written

    async def write_blobs(self, blobs: BlobStorage) -> None:
        """Store the jobs' BLOBs. Raises what ``blobs`` raises, and BackupDamaged."""
        with tempfile.TemporaryDirectory(prefix="emberkeep-restore-") as place:
            path = Path(place) / "blob"
            for blob in self._manifest.blobs:
                await asyncio.to_thread(self._reader.extract, self._members[blob_member(blob.sha256)], path)
                await blobs.put(blob.job_id, permanent(blob.sha256), path)

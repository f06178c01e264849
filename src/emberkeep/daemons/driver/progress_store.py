"""The progress of a driver's job, in the job's durable storage."""

from __future__ import annotations

import asyncio
from pathlib import Path

from emberkeep.adapters.shared_storage.progress_files import read_progress, write_progress
from emberkeep.daemons.driver.storage import require_own_place
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.progress.kept_progress import KeptProgress


class DriverProgressStore:
    """Implements ``jobmaster.progress_keeper.ProgressStore``. Reads and writes nothing while the storage is missing."""

    def __init__(self, spec: DriverSpec) -> None:
        self._spec = spec
        self._root = Path(spec.checkpoint_root)

    async def earlier(self) -> KeptProgress:
        return await asyncio.to_thread(self._earlier)

    async def keep(self, kept: KeptProgress) -> None:
        await asyncio.to_thread(self._keep, kept)

    def _earlier(self) -> KeptProgress:
        require_own_place(self._spec)
        return read_progress(self._root, before=self._spec.attempt)

    def _keep(self, kept: KeptProgress) -> None:
        require_own_place(self._spec)
        write_progress(self._root, self._spec.attempt, kept)

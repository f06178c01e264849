"""Progress histories of jobs as the JobManager reads them: from the driver, or from the storage without a driver."""

from __future__ import annotations

import asyncio
from pathlib import Path

from emberkeep.adapters.shared_storage.progress_files import read_progress
from emberkeep.base.errors import InvalidInput, OverQuota, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobs.progress.history import HistoryPage, Selection, page
from emberkeep.protocol.messages.job_masters import ProgressRead, ReadProgress
from emberkeep.protocol.transport import RpcClient

_SECONDS = 10.0  # for the driver's reply
_READS_AT_ONCE = 4
_MOST_WAITING = 64


class StoredProgressHistories:
    """Implements ``rest.ports.ProgressHistories``. ``checkpoint_root``: the directory of all jobs' checkpoints."""

    def __init__(self, rpc: RpcClient, checkpoint_root: Path) -> None:
        self._rpc = rpc
        self._root = checkpoint_root
        self._places = asyncio.Semaphore(_READS_AT_ONCE)
        self._waiting = 0

    async def read(self, job_master: str, job_id: JobId, attempt: int, selection: Selection) -> HistoryPage:
        """See ``ProgressHistories``."""
        if job_master:
            request = ReadProgress(job_id=job_id, attempt=attempt, selection=selection)
            try:
                return (await self._rpc.call(job_master, request, ProgressRead, timeout=_SECONDS)).page
            except (RetryLater, UnknownOutcome, InvalidInput):
                pass  # the driver is ending or of an older release: read what it has written
        return await self._stored(job_id, selection)

    async def _stored(self, job_id: JobId, selection: Selection) -> HistoryPage:
        if self._waiting >= _MOST_WAITING:
            raise OverQuota("too many progress histories are read at once", seconds=1.0)
        self._waiting += 1
        try:
            async with self._places:
                return await asyncio.to_thread(lambda: page(read_progress(self._root / job_id).queries, selection))
        finally:
            self._waiting -= 1

"""Logs of jobs in the shared storage, as the REST API reads them."""

from __future__ import annotations

from emberkeep.adapters.kept_logs.files import StitchedLog
from emberkeep.adapters.kept_logs.store import KeptLogStore
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.model import KeptLogKey, KeptLogList
from emberkeep.rest.ports import LogChunk, LogFound, LogQuery, LogSearch
from emberkeep.rest.serving.local_time import unix_from_local


class StoredLogs:
    """Implements ``rest.ports.KeptLogs``."""

    def __init__(self, store: KeptLogStore) -> None:
        self._store = store

    async def entries(self, job_id: JobId) -> KeptLogList:
        """See ``KeptLogs``."""
        return await self._store.logs(job_id)

    async def read(self, key: KeptLogKey, query: LogQuery) -> LogChunk:
        """See ``KeptLogs``."""
        return await self._store.examine(key, lambda opened: _read(opened, query))

    async def search(self, key: KeptLogKey, wanted: LogSearch) -> LogFound:
        """See ``KeptLogs``."""
        return await self._store.examine(key, lambda opened: _search(opened, wanted))


def _read(opened: StitchedLog, query: LogQuery) -> LogChunk:
    log, summary = opened.stitched, opened.summary
    start = max(0, log.size + query.offset) if query.offset < 0 else query.offset
    extent, data = log.extent_at(start), b""
    if extent is not None:
        start = max(start, extent.start)
        data = log.read(extent, start, query.limit, opened.load)
    return LogChunk(
        data=data,
        offset=start,
        size=log.size,
        complete=summary.is_whole and start + len(data) >= log.size,
        kept=True,
        kept_until_ms=summary.missing_after_ms,
    )


def _search(opened: StitchedLog, wanted: LogSearch) -> LogFound:
    log, summary = opened.stitched, opened.summary
    found = log.view(opened.load, summary.is_whole, unix_from_local).search(wanted.search)
    return LogFound(
        found=found,
        size=log.size,
        complete=summary.is_whole and found.end >= log.size,
        kept=True,
        kept_until_ms=summary.missing_after_ms,
    )

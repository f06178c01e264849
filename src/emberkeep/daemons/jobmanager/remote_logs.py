"""Task managers' logs as the JobManager reads them: requested by RPC, served from the BLOB store (BLOB-20)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from emberkeep.base.errors import Absent, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import parse_blob_key
from emberkeep.daemons.message_blobs import read
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.protocol.messages.logs import ListLogs, LogSearched, LogsListed, LogUploaded, SearchLog, UploadLog
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.protocol.transport import RpcClient
from emberkeep.rest.ports import LogChunk, LogFound, LogQuery, LogSearch

ReplyT = TypeVar("ReplyT", bound=Message)


class BlobRemoteLogs:
    """Implements ``rest.ports.RemoteLogs``.

    ``timeout``: seconds for a reply, beyond the seconds that a reader waits for new lines.
    """

    def __init__(self, rpc: RpcClient, blobs: BlobServerGateway, *, timeout: float) -> None:
        self._rpc = rpc
        self._blobs = blobs
        self._timeout = timeout

    async def entries(self, address: str, job_id: JobId | None) -> list[LogInfo]:
        """See ``RemoteLogs``."""
        listed = await self._ask(address, ListLogs(job_id=job_id), LogsListed, self._timeout)
        return [msgspec.convert(view, LogInfo, from_attributes=True) for view in listed.logs]

    async def read(self, address: str, log_id: str, query: LogQuery) -> LogChunk:
        """See ``RemoteLogs``."""
        request = UploadLog(
            log_id=log_id,
            offset=query.offset,
            limit=query.limit,
            wait=query.wait,
            from_start=query.from_start,
            job_id=query.job_id,
        )
        uploaded = await self._ask(address, request, LogUploaded, self._timeout + query.wait)
        return LogChunk(
            data=await self._content(uploaded, query.limit),
            offset=uploaded.offset,
            size=uploaded.size,
            complete=uploaded.complete,
            owner=uploaded.owner,
        )

    async def search(self, address: str, log_id: str, wanted: LogSearch) -> LogFound:
        """See ``RemoteLogs``."""
        request = SearchLog(log_id=log_id, search=wanted.search, wait=wanted.wait, job_id=wanted.job_id)
        searched = await self._ask(address, request, LogSearched, self._timeout + wanted.wait)
        return LogFound(found=searched.found, size=searched.size, complete=searched.complete)

    async def _content(self, uploaded: LogUploaded, limit: int) -> bytes:
        if not uploaded.key:
            return b""
        key = parse_blob_key(uploaded.key)
        try:
            return await read(uploaded.owner, key, await self._blobs.path(uploaded.owner, key), limit)
        except Absent as error:
            raise RetryLater(f"the part of the log was deleted before it could be read: {error.message}") from error
        finally:
            self._blobs.release(uploaded.owner, key, uploaded.holder)

    async def _ask(self, address: str, request: Message, reply: type[ReplyT], seconds: float) -> ReplyT:
        try:
            return await self._rpc.call(address, request, reply, timeout=seconds)
        except (RetryLater, UnknownOutcome) as error:
            raise RetryLater(
                f"the task manager at {address} does not answer: {error.message}",
                hint=error.hint or "its logs can be read once it is back",
            ) from None

"""A whole log as a file: read piece by piece, so that a log of any size needs the memory of one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import hdrs, web

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.rest.logs.response import MAX_LIMIT, kept_header
from emberkeep.rest.ports import LogChunk, LogQuery

DOWNLOAD_DOC = (
    "The log as far as it is written when the download begins. A download that cannot be completed breaks off without "
    "the end that HTTP requires, so that nobody takes it for the whole log."
)
_PIECE_SECONDS = 60.0  # in which a client must have read a piece
_log = structlog.get_logger(__name__)

ReadPiece = Callable[[LogQuery], Awaitable[LogChunk]]


async def send_log(request: web.Request, name: str, job_id: JobId | None, read: ReadPiece) -> web.StreamResponse:
    """Respond with the whole log. Raises what ``read`` raises at its first call."""

    def piece(offset: int) -> LogQuery:
        return LogQuery(offset=offset, limit=MAX_LIMIT, wait=0.0, job_id=job_id, from_start=False)

    chunk = await read(piece(0))
    end = chunk.size
    response = web.StreamResponse(
        headers={
            **kept_header(chunk),
            hdrs.CONTENT_TYPE: "text/plain; charset=utf-8",
            hdrs.CONTENT_DISPOSITION: f'attachment; filename="{name}.txt"',
            hdrs.CACHE_CONTROL: "no-store",
            "X-Content-Type-Options": "nosniff",
        }
    )
    response.enable_chunked_encoding()
    await response.prepare(request)
    offset, reason = chunk.offset, "the log has become shorter"
    try:
        while chunk.data and chunk.offset < end:
            offset = chunk.offset
            data = chunk.data[: end - offset]
            async with asyncio.timeout(_PIECE_SECONDS):
                await response.write(data)
            offset += len(data)
            if offset == end:
                break
            chunk = await read(piece(offset))
    except (EmberkeepError, TimeoutError) as error:
        reason = str(error) or "the client does not read"
    if offset == end:
        await response.write_eof()
        return response
    _log.warning("cut off the download of a log", log=name, bytes=offset, reason=reason)
    if request.transport is not None:
        request.transport.abort()
    return response

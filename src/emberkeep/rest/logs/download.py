"""Logs as files: read piece by piece, so that logs of any size need the memory of one piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import structlog
from aiohttp import hdrs, web

from emberkeep.base.errors import EmberkeepError, Unavailable
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

    async def read_at(offset: int) -> LogChunk:
        return await read(LogQuery(offset=offset, limit=MAX_LIMIT, wait=0.0, job_id=job_id, from_start=False))

    first = await read_at(0)
    return await send_file(request, name, _pieces(first, read_at), kept_header(first))


async def _pieces(chunk: LogChunk, read_at: Callable[[int], Awaitable[LogChunk]]) -> AsyncGenerator[bytes]:
    """Yield the log up to its present end. ``chunk``: its first piece. Raises Unavailable if it becomes shorter."""
    end = chunk.size
    while chunk.offset < end:
        if not chunk.data:
            raise Unavailable("the log has become shorter")
        data = chunk.data[: end - chunk.offset]
        yield data
        if chunk.offset + len(data) == end:
            return
        chunk = await read_at(chunk.offset + len(data))
    if chunk.offset > end:
        raise Unavailable("the log has become shorter")


async def send_file(
    request: web.Request, name: str, pieces: AsyncGenerator[bytes], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Respond with ``pieces`` as a text file. If they end with an error, the response breaks off without its end."""
    response = web.StreamResponse(
        headers={
            **headers,
            hdrs.CONTENT_TYPE: "text/plain; charset=utf-8",
            hdrs.CONTENT_DISPOSITION: f'attachment; filename="{name}.txt"',
            hdrs.CACHE_CONTROL: "no-store",
            "X-Content-Type-Options": "nosniff",
        }
    )
    response.enable_chunked_encoding()
    await response.prepare(request)
    sent = 0
    try:
        async with aclosing(pieces):
            async for data in pieces:
                async with asyncio.timeout(_PIECE_SECONDS):
                    await response.write(data)
                sent += len(data)
        await response.write_eof()
    except ConnectionError:
        _log.info("the client has ended the download of a log", log=name, bytes=sent)
    except (EmberkeepError, TimeoutError) as error:
        reason = str(error) or "the client does not read"
        _log.warning("cut off the download of a log", log=name, bytes=sent, reason=reason)
        if request.transport is not None:
            request.transport.abort()
    return response

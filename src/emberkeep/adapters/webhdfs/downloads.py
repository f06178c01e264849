"""The bytes of an OPEN reply on their way from StateFiles to the client.

Opening a file and reading its first piece are one step in a thread. For most files that piece is all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import structlog
from aiohttp import web

from emberkeep.adapters.webhdfs.bodies import IDLE_SECONDS, Gathered, gathered
from emberkeep.adapters.webhdfs.request import WebHdfsRequest
from emberkeep.adapters.webhdfs.work import GatewayWork
from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.local_state.gateway_ports import OpenedFile
from emberkeep.local_state.model import StatePath

log = structlog.get_logger(__name__)


async def send_file(
    work: GatewayWork, request: WebHdfsRequest, path: StatePath, open_file: Callable[[], OpenedFile]
) -> web.StreamResponse:
    """Send what ``open_file`` opens. An error before the first byte is raised; a later one ends the connection."""

    def begin() -> tuple[OpenedFile, Gathered]:
        opened = open_file()
        try:
            return opened, gathered(opened.pieces)
        except BaseException:
            _close(opened.pieces)
            raise

    async with work.transfer(request, path):
        opened, first = await work.at_store(request, path, begin)
        try:
            return await _sent(work, request, path, opened, first)
        finally:
            if not first.is_last:
                await work.in_thread(partial(_close, opened.pieces))


async def _sent(
    work: GatewayWork, request: WebHdfsRequest, path: StatePath, opened: OpenedFile, piece: Gathered
) -> web.StreamResponse:
    http = request.http
    response = web.StreamResponse()
    response.content_length = opened.length
    sent = len(piece.data)
    if piece.is_last and sent != opened.length:
        raise _ended_early(sent, opened)
    try:
        await response.prepare(http)
        await _write(response, piece.data)
        while not piece.is_last:
            piece = await work.at_store(request, path, partial(gathered, opened.pieces))
            sent += len(piece.data)
            await _write(response, piece.data)
        if sent != opened.length:
            raise _ended_early(sent, opened)
        await response.write_eof()
    except (EmberkeepError, ConnectionError, TimeoutError) as error:
        if not response.prepared:
            raise
        log.info("a state file was not sent in full", path=http.path[:200], reason=str(error))
        if http.transport is not None:
            http.transport.abort()  # the client sees that bytes are missing, and requests the rest
    return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    if data:
        async with asyncio.timeout(IDLE_SECONDS):
            await response.write(data)


def _ended_early(sent: int, opened: OpenedFile) -> RetryLater:
    return RetryLater(f"the file ended after {sent} of {opened.length} bytes")


def _close(pieces: Iterator[bytes]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()

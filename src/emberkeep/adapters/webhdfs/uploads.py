"""The bytes of a CREATE request on their way to StateFiles.

Most files of a micro-batch are small, and handing work to a thread costs more than writing a few kilobytes. So a body
that fits into one piece is received first, and then written and stored in one go. A larger one is written piece by
piece while it arrives.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import structlog

from emberkeep.adapters.webhdfs.bodies import PIECE_BYTES, body
from emberkeep.adapters.webhdfs.request import WebHdfsRequest
from emberkeep.adapters.webhdfs.work import GatewayWork
from emberkeep.base.errors import EmberkeepError
from emberkeep.local_state.gateway_ports import IncomingFile, StateFiles
from emberkeep.local_state.model import StatePath

log = structlog.get_logger(__name__)


async def store_body(
    files: StateFiles, work: GatewayWork, request: WebHdfsRequest, path: StatePath, *, overwrite: bool
) -> None:
    """Store the body of ``request`` at ``path``. Raises what ``receive`` and ``commit`` of StateFiles raise."""
    async with work.transfer(request, path), contextlib.aclosing(body(request.http)) as pieces:
        begin = await anext(pieces, b"")

        def receive() -> IncomingFile:
            incoming = files.receive(request.caller, path, overwrite=overwrite)
            try:
                incoming.write(begin)
            except BaseException:
                _abandon(incoming)
                raise
            return incoming

        def store() -> None:
            incoming = receive()
            try:
                incoming.commit()
            finally:
                _abandon(incoming)

        if len(begin) < PIECE_BYTES:  # all of it
            await work.at_store(request, path, store)
        else:
            await _store_rest(work, request, path, await work.at_store(request, path, receive), pieces)


async def _store_rest(
    work: GatewayWork, request: WebHdfsRequest, path: StatePath, incoming: IncomingFile, pieces: AsyncIterator[bytes]
) -> None:
    try:
        async for data in pieces:
            await work.in_thread(partial(incoming.write, data))
        await work.at_store(request, path, incoming.commit)
    finally:
        await work.in_thread(partial(_abandon, incoming))


def _abandon(incoming: IncomingFile) -> None:
    try:
        incoming.abandon()
    except EmberkeepError as error:
        log.warning("cannot delete a received file", reason=str(error))

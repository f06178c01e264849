"""Bounds on transfers: how many run at once, and for how long a reader may hold a file.

A download holds a file and a connection even if its client reads nothing, so it continues only while bytes move.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO

import structlog
from aiohttp import web

from emberkeep.base.errors import RetryLater

_FIRST_PIECE = 1024**2  # bytes that a client must read within _PIECE_SECONDS
_LARGEST_PIECE = 16 * 1024**2  # bytes of a piece for a quick client; larger pieces cost less
_PIECE_SECONDS = 60.0
_READ_BYTES = 512 * 1024
_QUICK = 1.0  # seconds; after a piece that took less, the next one is twice as large

_log = structlog.get_logger(__name__)


class TransferPlaces:
    """A bounded number of places, with a bounded queue of callers that wait for one."""

    def __init__(self, places: int, *, line: int = 4096, patience: float = 15.0) -> None:
        """Create ``places`` free places. At most ``line`` callers wait, each for at most ``patience`` seconds."""
        self._free = asyncio.Semaphore(places)
        self._line = line
        self._patience = patience
        self.waiting = 0
        self.taken = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place. Raises RetryLater if the queue is full or no place becomes free in time."""
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._free.release()

    async def _wait(self) -> None:
        if self.waiting >= self._line:
            raise _busy()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise _busy() from None
        finally:
            self.waiting -= 1


def _busy() -> RetryLater:
    return RetryLater("the limit of concurrent transfers is reached", hint="try again in a second")


async def send_file(response: web.StreamResponse, request: web.Request, source: FileIO, offset: int, count: int) -> int:
    """Send a part of a file after the head of ``response``. Copy it through this process only to encrypt it.

    Return how many bytes have certainly been sent. The connection is aborted if the client reads too slowly, or if
    the part cannot be sent completely.
    """
    await response.prepare(request)
    loop, piece, done = asyncio.get_running_loop(), _FIRST_PIECE, 0
    while done < count:
        transport = request.transport
        if transport is None or transport.is_closing():
            return done
        size = min(piece, count - done)
        began = time.monotonic()
        try:
            async with asyncio.timeout(_PIECE_SECONDS):
                if transport.get_extra_info("sslcontext") is None:
                    sent = await loop.sendfile(transport, source, offset + done, size)
                else:  # asyncio's sendfile would read pieces of 16 KiB, each in a thread
                    sent = await _write_piece(response, source, offset + done, size)
        except OSError as error:  # includes TimeoutError
            if not isinstance(error, ConnectionError):
                _log.warning(
                    "download_cut_off", reason=str(error) or "the client does not read its reply", path=request.path
                )
            transport.abort()
            return done
        if sent < size:  # the file was truncated: the client must not take what it got for the whole part
            transport.abort()
            return done
        done += size
        if time.monotonic() - began < _QUICK:
            piece = min(2 * piece, _LARGEST_PIECE)
    await response.write_eof()
    return done


async def _write_piece(response: web.StreamResponse, source: FileIO, offset: int, count: int) -> int:
    """Read a part of a file and write it, for a connection that is encrypted in this process. Return what was sent."""
    done = 0
    while done < count:
        data = await asyncio.to_thread(os.pread, source.fileno(), min(_READ_BYTES, count - done), offset + done)
        if not data:
            break
        await response.write(data)
        done += len(data)
    return done

"""Places for pages of Spark UIs: how many pages this process holds at once, and for how long.

A page is in memory from its reading until its client has taken it, and a client may take nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from aiohttp import hdrs, web

from emberkeep.base.errors import OverQuota
from emberkeep.rest.serving.transfers import TransferPlaces

PLACES = 16
TICKET_PLACES = 6  # of one ticket: as many as a browser asks for at once, so that the others find a place
MOST_WAITING = 32  # of one ticket
SECONDS = 120.0  # for a client to take its page, and for a request to wait for a place
_PIECE = 128 * 1024

_log = structlog.get_logger(__name__)


class PagePlaces:
    """The places. ``seconds``: a client that has not taken its page after this time loses its connection."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._places = TransferPlaces(PLACES, patience=SECONDS)
        self._of_tickets: dict[str, TransferPlaces] = {}  # while they are used

    @asynccontextmanager
    async def place(self, ticket: str) -> AsyncIterator[None]:
        """Hold a place for a page of a ticket: from before it is read until it has been sent.

        A ticket holds at most TICKET_PLACES. Raises OverQuota if too many requests of the ticket wait already,
        RetryLater if no place becomes free in time.
        """
        own = self._of_tickets.setdefault(ticket, TransferPlaces(TICKET_PLACES, line=MOST_WAITING, patience=SECONDS))
        if own.waiting >= MOST_WAITING:
            raise OverQuota("too many pages of this link are asked for at once", seconds=1.0)
        try:
            async with own.place(), self._places.place():
                yield
        finally:
            if not own.taken and not own.waiting:
                self._of_tickets.pop(ticket, None)

    async def send(self, request: web.Request, answer: web.Response) -> None:
        """Send an answer completely, or abort the connection of a client that does not take it."""
        try:
            async with asyncio.timeout(self._seconds):
                await answer.prepare(request)
                await answer.write_eof()
        except ConnectionError:
            pass  # the client has gone
        except TimeoutError:
            _log.warning("cut off a page of a Spark UI", reason=f"the client has not taken it in {self._seconds:g} s")
            if request.transport is not None:
                request.transport.abort()


def page_answer(status: int, headers: dict[str, str], body: bytes) -> web.Response:
    """Return an answer that is written in pieces.

    A connection, most of all one that encrypts, would keep a whole body that is written at once, although the writer
    is told that it may go on.
    """
    return web.Response(status=status, headers={**headers, hdrs.CONTENT_LENGTH: str(len(body))}, body=_pieces(body))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for offset in range(0, len(body), _PIECE):
        yield body[offset : offset + _PIECE]

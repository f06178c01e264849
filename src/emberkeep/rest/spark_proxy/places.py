"""Places for pages of Spark UIs: how many pages this process holds at once, and for how long.

A page, or a piece of a large one, is in memory from its reading until its client has taken it, and a client may take
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog
from aiohttp import hdrs, web

from emberkeep.base.errors import EmberkeepError, OverQuota
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.rest.serving.transfers import TransferPlaces

PLACES = 16
TICKET_PLACES = 6  # of one ticket: as many as a browser asks for at once, so that the others find a place
MOST_WAITING = 32  # of one ticket
SECONDS = 120.0  # for a client to take its page or a piece of it, and for a request to wait for a place
_PIECE = 128 * 1024

_log = structlog.get_logger(__name__)


class PagePlaces:
    """The places. ``seconds``: a client that has not taken its page, or a piece of it, by then loses its connection."""

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

    async def send(self, request: web.Request, answer: web.Response, body: PageBody) -> None:
        """Send an answer completely, or abort the connection, so that no page looks whole that is not."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds) as limit:
                body.began_piece = lambda: limit.reschedule(loop.time() + self._seconds)
                await answer.prepare(request)
                if request.method == hdrs.METH_HEAD:
                    await body.skip()
                await answer.write_eof()
        except ConnectionError:
            pass  # the client has gone
        except TimeoutError:
            _cut_off(request, f"the client has not taken it in {self._seconds:g} s")
        except EmberkeepError as error:
            _cut_off(request, f"its next piece cannot be read: {error.message}")


def _cut_off(request: web.Request, reason: str) -> None:
    _log.warning("cut off a page of a Spark UI", reason=reason)
    if request.transport is not None:
        request.transport.abort()


class PageBody:
    """The body of a page. ``following`` reads the next piece of a large one by ``more`` of the piece before.

    ``more``: names the pieces that were not read yet; "" if there are none.
    """

    def __init__(self, page: SparkUiRead, following: Callable[[str], Awaitable[SparkUiRead]]) -> None:
        self._page = page
        self._following = following
        self.more = page.more
        self.began_piece: Callable[[], None] = lambda: None  # called when a further piece was read

    @property
    def size(self) -> int | None:
        """How many bytes it has; None if that is unknown, because further pieces follow."""
        return None if self._page.more else len(self._page.body)

    async def skip(self) -> None:
        """Read the page to its end: until then its driver keeps one of few places for it. Raises as ``pieces``."""
        async for _ in self.pieces():
            pass

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises what ``following`` raises."""
        page = self._page
        while True:
            for offset in range(0, len(page.body), _PIECE):
                yield page.body[offset : offset + _PIECE]
            if not page.more:
                return
            page = await self._following(page.more)
            self.more = page.more
            self.began_piece()


def page_answer(status: int, headers: dict[str, str], body: PageBody) -> web.Response:
    """Return an answer that is written in pieces.

    A connection, most of all one that encrypts, would keep a whole body that is written at once, although the writer
    is told that it may go on.
    """
    if body.size is not None:
        headers = {**headers, hdrs.CONTENT_LENGTH: str(body.size)}
    return web.Response(status=status, headers=headers, body=body.pieces())

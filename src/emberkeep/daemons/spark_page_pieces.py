"""Large pages of a Spark UI, which are sent in pieces, so that no process holds a whole one.

Between two pieces the connection to Spark stays open, and Spark waits. So the number of such pages is bounded, and the
page that was not continued for the longest time makes room for another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from emberkeep.base.clock import since_boot
from emberkeep.base.errors import Absent, Conflict, OverQuota
from emberkeep.daemons.spark_pages import SparkPage, open_spark_page, read_spark_page
from emberkeep.protocol.limits import SPARK_UI_BYTES, SPARK_UI_PAGE_BYTES, SPARK_UI_PIECE_BYTES
from emberkeep.protocol.messages.job_masters import SparkUiRead

PAGES_AT_ONCE: Final = 4
IDLE_SECONDS: Final = 30.0  # after which a page makes room for another one
_KEY_BYTES: Final = 16


@dataclass(frozen=True)
class _Begun:
    """A page of which pieces were read. ``owner``: whose page it is. ``read_at``: when the newest piece was read."""

    page: SparkPage
    owner: object
    sent: int
    read_at: float


class PagesInPieces:
    """Pages whose first piece was read, and others are to follow. Belongs to one event loop.

    ``owner``: the pieces of a page are only for the one for whom it was begun.
    """

    def __init__(self, now: Callable[[], float] = since_boot) -> None:
        self._now = now
        self._begun: dict[str, _Begun] = {}  # the least recently read first

    async def read(
        self, address: str, path: str, *, token: str, base: str, in_pieces: bool, owner: object = None
    ) -> SparkUiRead:
        """Return the page of the UI at ``address``: whole, or its first piece if it may come ``in_pieces``.

        Raises what ``read_spark_page`` raises, OverQuota.
        """
        if not in_pieces:
            return await read_spark_page(address, path, token=token, base=base)
        return await self.first(await open_spark_page(address, path, token=token, base=base), owner)

    async def first(self, page: SparkPage, owner: object = None) -> SparkUiRead:
        """Return the head of a page and its first piece; ``more`` names the page if there are others.

        The page belongs to this object, which closes it. Raises OverQuota, RetryLater.
        """
        try:
            body = await page.read(SPARK_UI_BYTES)
            more = ""
            if not page.is_read:
                await self._make_room()
                more = secrets.token_urlsafe(_KEY_BYTES)
                self._begun[more] = _Begun(page, owner, len(body), self._now())
        except BaseException:
            await page.close()
            raise
        if not more:
            await page.close()
        return page.as_read(body, more)

    async def following(self, more: str, owner: object = None) -> SparkUiRead:
        """Return the next piece of a page. Raises Absent, Conflict (too large), RetryLater: then the page is closed."""
        begun = self._begun.pop(more, None)
        if begun is None or begun.owner != owner:
            if begun is not None:
                self._begun[more] = begun
            raise Absent("this page of the Spark UI is no longer read", hint="reload the page")
        continues = False
        try:
            piece = await begun.page.read(SPARK_UI_PIECE_BYTES)
            sent = begun.sent + len(piece)
            if sent > SPARK_UI_PAGE_BYTES:
                raise Conflict(f"a page of the Spark UI has more than {SPARK_UI_PAGE_BYTES // 1024**2} MiB")
            continues = not begun.page.is_read
            if continues:
                self._begun[more] = _Begun(begun.page, owner, sent, self._now())
        finally:
            if not continues:
                await begun.page.close()
        return begun.page.as_read(piece, more if continues else "")

    async def abandon(self, more: str, owner: object = None) -> None:
        """Close a page whose reader has gone, so that it makes room at once. Does nothing if it is not known."""
        begun = self._begun.get(more)
        if begun is not None and begun.owner == owner:
            del self._begun[more]
            await begun.page.close()

    async def close(self) -> None:
        """Close all pages."""
        while self._begun:
            await self._begun.pop(next(iter(self._begun))).page.close()

    async def _make_room(self) -> None:
        """Close the page that was not continued for the longest time, if there is no room. Raises OverQuota."""
        if len(self._begun) < PAGES_AT_ONCE:
            return
        oldest = next(iter(self._begun))
        wait = self._begun[oldest].read_at + IDLE_SECONDS - self._now()
        if wait > 0:
            raise OverQuota("too many large pages of the Spark UI are read at once", seconds=wait)
        await self._begun.pop(oldest).page.close()

"""Reads pages of the driver's Spark UI for the JobManager."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from emberkeep.base.errors import Conflict, OverQuota, RetryLater
from emberkeep.daemons.spark_page_pieces import PagesInPieces
from emberkeep.daemons.spark_pages import check_spark_path
from emberkeep.protocol.messages.job_masters import ReadSparkUi, SparkUiRead
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.transport import RpcService

SECONDS = 20.0  # for one page
_AT_ONCE = 4
_MOST_WAITING = 32
_TURNED_OFF = "submit the job without spark.ui.enabled=false, in its settings and in spark-defaults.conf"


class SparkUiPages:
    """RpcService that answers ReadSparkUi; ``service`` answers all other requests. Belongs to one event loop.

    ``address`` returns the page's URL, None if it is turned off; it raises RetryLater if Spark does not answer.
    ``token``: what Spark's filter asks for.
    """

    def __init__(self, service: RpcService, address: Callable[[], Awaitable[str | None]], token: str) -> None:
        self._service = service
        self._address = address
        self._token = token
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._in_pieces = PagesInPieces()

    async def close(self) -> None:
        """Close the pages of which only a part was read."""
        await self._in_pieces.close()

    async def serve(self, request: Message) -> Message:
        """See RpcService.

        For ReadSparkUi, raises Absent (no such piece), Conflict (turned off, too large), InvalidInput, OverQuota,
        RetryLater.
        """
        if not isinstance(request, ReadSparkUi):
            return await self._service.serve(request)
        if not request.more:
            check_spark_path(request.path, request.base)
        if self._waiting >= _MOST_WAITING:
            raise OverQuota("too many pages of the job's Spark UI are asked for at once", seconds=1.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(SECONDS), self._places:
                return await self._read(request)
        except TimeoutError:
            raise RetryLater(f"the Spark UI did not answer within {SECONDS:g} s") from None
        finally:
            self._waiting -= 1

    async def _read(self, request: ReadSparkUi) -> SparkUiRead:
        if request.abandons:
            await self._in_pieces.abandon(request.more)
            return SparkUiRead(status=HTTPStatus.NO_CONTENT, content_type="", location="", body=b"")
        if request.more:
            return await self._in_pieces.following(request.more)
        address = await self._address()
        if address is None:
            raise Conflict("the job's Spark UI is turned off", hint=_TURNED_OFF)
        return await self._in_pieces.read(
            address, request.path, token=self._token, base=request.base, in_pieces=request.in_pieces
        )

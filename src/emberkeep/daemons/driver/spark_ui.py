"""Reads pages of the driver's Spark UI for the JobManager."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from emberkeep.base.errors import Conflict, InvalidInput, OverQuota, RetryLater
from emberkeep.protocol.limits import SPARK_UI_BYTES
from emberkeep.protocol.messages import Message, ReadSparkUi, SparkUiRead
from emberkeep.protocol.transport import RpcService

SECONDS = 20.0  # for one page
_AT_ONCE = 4
_MOST_WAITING = 32
_PATH = re.compile(r"/(?:[!-.0-~][!-~]*)?")  # as browsers send it, and not "//host"
_BASE = re.compile(r"(?:/[A-Za-z0-9_-]{1,128})?")
_TURNED_OFF = "submit the job without spark.ui.enabled=false, in its settings and in spark-defaults.conf"
_BASE_HEADER = "X-Forwarded-Context"  # what Spark puts before its own paths in links and redirects


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

    async def serve(self, request: Message) -> Message:
        """See RpcService.

        For ReadSparkUi, raises Conflict (turned off, too large), InvalidInput, OverQuota, RetryLater.
        """
        if not isinstance(request, ReadSparkUi):
            return await self._service.serve(request)
        if not _PATH.fullmatch(request.path):
            raise InvalidInput(f"{request.path[:200]!r} is not a path of the Spark UI", field="path")
        if not _BASE.fullmatch(request.base):
            raise InvalidInput(f"{request.base[:200]!r} is not a path of one part", field="base")
        if self._waiting >= _MOST_WAITING:
            raise OverQuota("too many pages of the job's Spark UI are asked for at once", seconds=1.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(SECONDS), self._places:
                return await self._read(request.path, request.base)
        except TimeoutError:
            raise RetryLater(f"the Spark UI did not answer within {SECONDS:g} s") from None
        finally:
            self._waiting -= 1

    async def _read(self, path: str, base: str) -> SparkUiRead:
        address = await self._address()
        if address is None:
            raise Conflict("the job's Spark UI is turned off", hint=_TURNED_OFF)
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=True) as session,
                session.get(
                    URL(f"{address}{path}", encoded=True),
                    headers={"Authorization": f"Bearer {self._token}", **({_BASE_HEADER: base} if base else {})},
                    allow_redirects=False,
                ) as reply,
            ):
                body = bytearray()
                async for piece in reply.content.iter_any():
                    body += piece
                    if len(body) > SPARK_UI_BYTES:
                        raise Conflict(f"{path[:200]} has more than {SPARK_UI_BYTES // 1024**2} MiB")
        except (aiohttp.ClientError, OSError) as error:
            raise RetryLater(f"the Spark UI does not answer: {error}") from error
        except ValueError as error:
            raise InvalidInput(f"{path[:200]!r} is not a path of the Spark UI: {error}", field="path") from error
        return SparkUiRead(
            status=reply.status,
            content_type=reply.headers.get("Content-Type", ""),
            location=_own_path(reply.headers.get("Location", ""), address),
            body=bytes(body),
        )


def _own_path(location: str, address: str) -> str:
    """Return the path to which the page redirects; "" if it leads elsewhere."""
    parts = urlsplit(location)
    if parts.netloc and parts.netloc != urlsplit(address).netloc:
        return ""
    path = parts.path if parts.path.startswith("/") and not parts.path.startswith("//") else ""
    return f"{path}?{parts.query}" if path and parts.query else path

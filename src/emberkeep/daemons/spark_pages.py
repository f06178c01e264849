"""Reads pages of a Spark UI on this machine: of a driver, or of Spark's History Server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from emberkeep.base.errors import Conflict, InvalidInput, RetryLater
from emberkeep.protocol.limits import SPARK_UI_BYTES
from emberkeep.protocol.messages.job_masters import SparkUiRead

_PATH = re.compile(r"/(?:[!-.0-~][!-~]*)?")  # as browsers send it, and not "//host"
_BASE = re.compile(r"(?:/[A-Za-z0-9_-]{1,128})?")
_TLS_HINT = "see that the job does not set spark.ssl.ui.needClientAuth=true"  # we have no certificate to show
_BASE_HEADER = "X-Forwarded-Context"  # what Spark puts before its own paths in links and redirects


def check_spark_path(path: str, base: str) -> None:
    """Raise InvalidInput unless ``path`` is a path with its query, and ``base`` is "" or a path of one part."""
    if not _PATH.fullmatch(path):
        raise InvalidInput(f"{path[:200]!r} is not a path of the Spark UI", field="path")
    if not _BASE.fullmatch(base):
        raise InvalidInput(f"{base[:200]!r} is not a path of one part", field="base")


class SparkPage:
    """A page of a Spark UI whose body is being read. Whoever has opened it closes it."""

    def __init__(self, session: aiohttp.ClientSession, reply: aiohttp.ClientResponse, address: str) -> None:
        self._session = session
        self._reply = reply
        self._address = address
        self._received = bytearray()  # and not yet read
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_read(self) -> bool:
        """True if all of the body was read."""
        return self._has_ended and not self._received

    async def read(self, most: int) -> bytes:
        """Return the next ``most`` bytes of the body, fewer only at its end. Raises RetryLater."""
        while len(self._received) <= most and not self._has_ended:
            with _asking(self._address):
                received = await self._reply.content.readany()
            self._received += received
            self._has_ended = not received
        body = bytes(self._received[:most])
        del self._received[:most]
        return body

    def as_read(self, body: bytes, more: str = "") -> SparkUiRead:
        """Return the page, or a piece of it, as it is sent to a reader."""
        return SparkUiRead(
            status=self._reply.status,
            content_type=self._reply.headers.get("Content-Type", ""),
            location=_own_path(self._reply.headers.get("Location", ""), self._address),
            body=body,
            more=more,
        )

    async def close(self) -> None:
        """End the connection, whether the body was read or not."""
        self._reply.close()
        await self._session.close()


async def open_spark_page(address: str, path: str, *, token: str, base: str) -> SparkPage:
    """Return the page of the UI at ``address`` that ``path`` names, see ``check_spark_path``.

    ``token``: what Spark's filter asks for. The caller bounds the time. Raises InvalidInput, RetryLater.
    """
    headers = {"Authorization": f"Bearer {token}", **({_BASE_HEADER: base} if base else {})}
    session = aiohttp.ClientSession(auto_decompress=True, timeout=aiohttp.ClientTimeout(total=None))
    try:
        with _asking(address):
            url = URL(f"{address}{path}", encoded=True)
            # With the user's ``spark.ssl.ui``, the page has any certificate. Spark itself has named its own address.
            reply = await session.get(url, headers=headers, allow_redirects=False, ssl=False)
    except BaseException as error:
        await session.close()
        if isinstance(error, ValueError):
            raise InvalidInput(f"{path[:200]!r} is not a path of the Spark UI: {error}", field="path") from error
        raise
    return SparkPage(session, reply, address)


async def read_spark_page(address: str, path: str, *, token: str, base: str) -> SparkUiRead:
    """Return a whole page. See ``open_spark_page``; also raises Conflict (too large)."""
    async with await open_spark_page(address, path, token=token, base=base) as page:
        body = await page.read(SPARK_UI_BYTES)
        if not page.is_read:
            raise Conflict(
                f"{path[:200]} has more than {SPARK_UI_BYTES // 1024**2} MiB",
                hint="open the Spark UI with the link on the job's page, where pages may be larger",
            )
        return page.as_read(body)


@contextmanager
def _asking(address: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        hint = _TLS_HINT if address.startswith("https:") else None
        raise RetryLater(f"the Spark UI does not answer: {error}", hint=hint) from error


def _own_path(location: str, address: str) -> str:
    """Return the path to which the page redirects; "" if it leads elsewhere."""
    parts = urlsplit(location)
    if parts.netloc and parts.netloc != urlsplit(address).netloc:
        return ""
    path = parts.path if parts.path.startswith("/") and not parts.path.startswith("//") else ""
    return f"{path}?{parts.query}" if path and parts.query else path

"""Reads one page of a Spark UI on this machine: of a driver, or of Spark's History Server."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from emberkeep.base.errors import Conflict, InvalidInput, RetryLater
from emberkeep.protocol.limits import SPARK_UI_BYTES
from emberkeep.protocol.messages import SparkUiRead

_PATH = re.compile(r"/(?:[!-.0-~][!-~]*)?")  # as browsers send it, and not "//host"
_BASE = re.compile(r"(?:/[A-Za-z0-9_-]{1,128})?")
_BASE_HEADER = "X-Forwarded-Context"  # what Spark puts before its own paths in links and redirects


def check_spark_path(path: str, base: str) -> None:
    """Raise InvalidInput unless ``path`` is a path with its query, and ``base`` is "" or a path of one part."""
    if not _PATH.fullmatch(path):
        raise InvalidInput(f"{path[:200]!r} is not a path of the Spark UI", field="path")
    if not _BASE.fullmatch(base):
        raise InvalidInput(f"{base[:200]!r} is not a path of one part", field="base")


async def read_spark_page(address: str, path: str, *, token: str, base: str) -> SparkUiRead:
    """Return the page of the UI at ``address`` that ``path`` names, see ``check_spark_path``.

    ``token``: what Spark's filter asks for. Raises Conflict (too large), InvalidInput, RetryLater.
    """
    headers = {"Authorization": f"Bearer {token}", **({_BASE_HEADER: base} if base else {})}
    try:
        async with (
            aiohttp.ClientSession(auto_decompress=True) as session,
            session.get(URL(f"{address}{path}", encoded=True), headers=headers, allow_redirects=False) as reply,
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

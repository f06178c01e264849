"""Sends strange requests to all JobManagers, as fast as they are answered."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from campaign.load.strange import Strange, draw
from campaign.processes.calls import SECONDS, Answered

_RAW_SECONDS = 1.0  # a server may rightly wait for the rest of a request
_SHORTEST_PAUSE = 0.005


class Fuzzer:
    """``counts``: how often each status came, and how often none."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        operations: Sequence[tuple[str, str]],
        example: bytes,
        chance: random.Random,
        seen: Callable[[Answered], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._urls = urls
        self._token = token
        self._operations = operations
        self._example = example
        self._chance = chance
        self._seen = seen

    async def run(self, until: float) -> None:
        """Send one request after the other, until a time by the clock."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            while time.monotonic() < until:
                await self.send(session)
                await asyncio.sleep(_SHORTEST_PAUSE)

    async def send(self, session: aiohttp.ClientSession) -> None:
        """Send the next request."""
        strange, base = draw(self._chance, self._operations, self._example), self._chance.choice(self._urls)
        try:
            await (self._send_raw(base, strange) if strange.raw else self._send(session, base, strange))
        except (aiohttp.ClientError, OSError, ValueError):  # ValueError: aiohttp itself refuses to send it
            self.counts["no reply"] += 1

    async def _send(self, session: aiohttp.ClientSession, base: str, strange: Strange) -> None:
        headers = {"Authorization": f"Bearer {self._token}", **dict(strange.headers)}
        sent = time.monotonic()
        async with session.request(
            strange.method,
            URL(base + strange.path, encoded=True),
            data=io.BytesIO(strange.body) if strange.body else None,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=SECONDS),
        ) as reply:
            self.counts[str(reply.status)] += 1
            self._seen(Answered(strange.method, strange.path, reply.status, sent, time.monotonic()))

    async def _send_raw(self, base: str, strange: Strange) -> None:
        address = urlsplit(base)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(strange.raw)
            with contextlib.suppress(TimeoutError):
                head = await asyncio.wait_for(reader.readline(), _RAW_SECONDS)
                words = head.split()
                is_reply = len(words) > 1 and head.startswith(b"HTTP/")
                self.counts[words[1].decode(errors="replace") if is_reply else "closed"] += 1
                return
            self.counts["waits for more"] += 1
        finally:
            writer.close()

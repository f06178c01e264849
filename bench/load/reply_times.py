"""How long a JobManager keeps others waiting while something else goes on: what its heartbeats would see."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from pathlib import Path

from bench.daemons import Server
from bench.load.connections import Connection, post_request

_INTERVAL = 0.01  # seconds between two questions


class WorstReply:
    """Asks the server for the least that it can answer, again and again."""

    def __init__(self, server: Server) -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        request = post_request(server.address, "/v1/config", headers, b"")
        self._request = request.replace(b"POST", b"GET", 1)
        self._address = server.address
        self._pid = server.process.pid

    def waited(self) -> float:
        """For how long the server's event loop has waited for a processor in its life, in ms: it was ready to run, and
        others did."""
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) / 1e6

    async def during(self, work: Awaitable[object]) -> float:
        """The longest time, in ms, that an answer took while ``work`` ran."""
        connection = await Connection.open(self._address)
        worst = 0.0

        async def ask() -> None:
            nonlocal worst
            while True:
                due = time.perf_counter()
                await connection.post(self._request)
                worst = max(worst, time.perf_counter() - due)
                await asyncio.sleep(_INTERVAL)

        asking = asyncio.create_task(ask())
        try:
            await work
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            connection.close()
        return worst * 1e3

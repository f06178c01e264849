"""A TCP proxy that can fall silent: what goes through it is cut off as by a network, nothing is refused."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK = 64 * 1024


class Proxy:
    """Belongs to the event loop that ``open`` runs on. ``address`` is where it listens, once it is open."""

    def __init__(self, target: str) -> None:
        """``target``: "host:port"."""
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    async def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, host, port)
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """From now on no byte goes through; connections stay, and new ones are taken."""
        self._open.clear()

    def heal(self) -> None:
        """End what was held up, as a network does that has lost its memory, and let new connections through."""
        for task in list(self._tasks):
            task.cancel()
        self._open.set()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.heal()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._open.wait()
            with contextlib.suppress(OSError):
                there_reader, there_writer = await asyncio.open_connection(*self._target)
                try:
                    await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))
                finally:
                    there_writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

"""An HTTP port that stays bound while its application changes: a standby's, a leader's, and back.

Each application has its own connections. They are closed when the next application takes over, so that no client keeps
talking to the previous one.
"""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from emberkeep.adapters.http.listener import Listener
from emberkeep.adapters.http.server import BoundPort, bind_error, set_up


class SwitchedPort:
    """A bound port: ``open`` it with the first application, then ``switch`` as often as needed."""

    def __init__(self, port: BoundPort, tls: ssl.SSLContext | None = None) -> None:
        """``tls`` encrypts all connections; None: they are not encrypted."""
        self._port = port
        self._runner: web.AppRunner | None = None
        self._listener = Listener(port.socket, port.connections, self._server, tls)
        self._switching = asyncio.Lock()

    async def open(self, app: web.Application) -> None:
        """Serve ``app`` at the port.

        ``close`` closes the port as well. Raises Fatal if another process took the port.
        """
        await self.switch(app)
        try:
            self._listener.open()
        except OSError as error:
            await self.close()
            raise bind_error(error, self._port.bind_host, self._port.bound, self._port.option) from None

    async def switch(self, app: web.Application) -> None:
        """Send new connections to ``app`` and close those of the previous application.

        Requests that the previous application is answering get SHUTDOWN_SECONDS to finish.
        """
        runner = await set_up(app)
        async with self._switching:
            before, self._runner = self._runner, runner
            if before is not None:
                await before.cleanup()

    async def close(self) -> None:
        """Stop listening and close all connections. Idempotent."""
        self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _server(self) -> web.Server | None:
        return None if self._runner is None else self._runner.server

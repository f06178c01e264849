"""An HTTP port that stays bound while its application changes: a standby's, a leader's, and back.

Each application has its own connections. They are closed when the next application takes over, so that no client keeps
talking to the previous one.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from emberkeep.adapters.http.server import READ_BUFFER, SHUTDOWN_SECONDS, BoundPort, bind_error
from emberkeep.base.errors import Fatal


class SwitchedPort:
    """A bound port: ``open`` it with the first application, then ``switch`` as often as needed."""

    def __init__(self, port: BoundPort) -> None:
        self._port = port
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._switching = asyncio.Lock()

    async def open(self, app: web.Application) -> None:
        """Serve ``app`` at the port.

        ``close`` closes the port as well. Raises Fatal if another process took the port.
        """
        await self.switch(app)
        try:
            self._listener = await asyncio.get_running_loop().create_server(self._protocol, sock=self._port.socket)
        except OSError as error:
            await self.close()
            raise bind_error(error, self._port.host, self._port.port, self._port.option) from None

    async def switch(self, app: web.Application) -> None:
        """Send new connections to ``app`` and close those of the previous application.

        Requests that the previous application is answering get SHUTDOWN_SECONDS to finish.
        """
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, read_bufsize=READ_BUFFER)
        await runner.setup()
        async with self._switching:
            before, self._runner = self._runner, runner
            if before is not None:
                await before.cleanup()

    async def close(self) -> None:
        """Stop listening and close all connections. Idempotent."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._port.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _protocol(self) -> asyncio.BaseProtocol:
        if self._runner is None or self._runner.server is None:
            raise Fatal("this port is closed")  # between two loop iterations; asyncio drops the connection
        return self._runner.server()

"""A JobManager's port with named tokens, in a thread, for the command line."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emberkeep.adapters.http.sessions import WebSessions
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import SystemIds
from emberkeep.base.system import System
from emberkeep.jobmanager.named_tokens import TokenRegistry
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.server import eventually, running_site


def has_read(tokens: TokenRegistry) -> bool:
    """True once the registry answers."""
    try:
        tokens.identify("ek.")
    except RetryLater:
        return False
    return True


class ServedTokens:
    """Serves on loopback. ``gateway``: set its jobs before ``serving``."""

    def __init__(self, directory: Path) -> None:
        self.gateway = FakeGateway()
        self.url = ""
        self._directory = directory
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._done = asyncio.Event()

    @contextmanager
    def serving(self) -> Iterator[ServedTokens]:
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served-tokens")
        thread.start()
        try:
            assert self._ready.wait(60)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._done.set)
            thread.join(60)
            assert not thread.is_alive()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        system = System(SystemClock(), random.Random(1), SystemIds())
        store = EmbeddedJobStore(self._directory / "jobs.sqlite", self._directory / "graphs")
        await store.open()
        tokens = TokenRegistry(store.tokens, system)
        reading = asyncio.create_task(tokens.run())
        sessions = WebSessions(is_valid=tokens.is_current)
        async with running_site(self._directory, self.gateway, tokens=tokens, sessions=sessions, system=system) as site:
            await eventually(lambda: has_read(tokens))
            self.url = site.base
            self._ready.set()
            await self._done.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await store.close()

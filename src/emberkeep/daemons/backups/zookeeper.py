"""A ZooKeeper session for the time of a backup or a restore."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from emberkeep.adapters.zookeeper.access.settings import session_settings
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Unavailable

_CONNECTING_SECONDS = 20.0


@contextlib.asynccontextmanager
async def zookeeper_session(configuration: Configuration, token: str) -> AsyncIterator[ZooKeeperSession]:
    """Connect. Raises Unavailable, InvalidInput (settings)."""
    session = ZooKeeperSession(session_settings(configuration, token))
    session.start()
    try:
        try:
            async with asyncio.timeout(_CONNECTING_SECONDS):
                await session.connected()
        except TimeoutError:
            raise Unavailable(
                f"ZooKeeper at {session.hosts} cannot be reached",
                hint="check its servers and high-availability.zookeeper.quorum",
            ) from None
        yield session
    finally:
        await session.close()

"""Wait for another JobManager to become the leader."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from demo.commands import Cluster
from emberkeep.base.errors import RetryLater

_POLL = 0.05
_LIMIT_SECONDS = 60.0


async def new_leader(cluster: Cluster, before: str) -> str:
    """Return the address of the leader after the one at ``before``. Raises RetryLater if none is elected in time."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client) for client in cluster.others(before)]
        while True:
            for client in clients:
                try:
                    return (await client.overview()).emberkeep.job_manager
                except RetryLater:
                    if time.monotonic() > deadline:
                        raise
            await asyncio.sleep(_POLL)

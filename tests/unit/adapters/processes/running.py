"""A supervisor that runs while a test looks at it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor


@contextlib.asynccontextmanager
async def running(supervisor: ProcessSupervisor) -> AsyncIterator[None]:
    watching = asyncio.create_task(supervisor.run())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        await supervisor.close()


async def ended(exits: list[Exit]) -> None:
    """Wait until the end of a process is reported to ``exits``."""
    async with asyncio.timeout(60):
        while not exits:  # noqa: ASYNC110 - whoever appends tells nobody
            await asyncio.sleep(0.01)

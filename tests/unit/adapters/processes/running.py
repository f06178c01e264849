"""A supervisor that runs while a test looks at it, and what it starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor


def sleeper(directory: Path) -> StartRequest:
    """A process that sleeps for ten minutes."""
    return StartRequest(
        name="sleeper",
        argv=("sleep", "600"),
        environ=dict(os.environ),
        directory=directory,
        stdout=directory / "out",
        stderr=directory / "err",
    )


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

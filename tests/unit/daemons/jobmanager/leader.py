"""A JobManager without high availability, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import real_system
from emberkeep.daemons.jobmanager.alone import JobManagerProcess, job_manager_process
from emberkeep.daemons.process_main import Services


@asynccontextmanager
async def leading(directory: Path, settings: Mapping[str, str]) -> AsyncIterator[JobManagerProcess]:
    """Let a JobManager lead until the block ends. ``settings``: by key, besides those of each test."""
    texts = {
        "emberkeep.state-dir": str(directory / "state"),
        "rest.port": "0",
        "security.encryption": "none",
        **settings,
    }
    configuration = Configuration().with_texts(texts, "test")
    services = Services()
    try:
        async with job_manager_process(
            real_system(), configuration, state_layout(configuration, {}), services, asyncio.Event()
        ) as process:
            yield process
    finally:
        await services.cancel()

"""Keeps the shared storage as small as its jobs: default checkpoints go when nothing needs them any more.

A default checkpoint lives as long as its job may run again: it goes when the job has FINISHED or was CANCELED, and with
the job's result when it FAILED (somebody may want to look at it).

A leader that was deposed without knowing it must not take another one's jobs for ended. So it looks at what lies there
first, then confirms that it leads, then asks which jobs there are: a directory that lay there before it was confirmed
belongs to a job that was accepted before, which this leader knows, or which has ended for good: true for ever.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.state_layout import StateLayout
from emberkeep.jobmanager.views import JobManagerGateway, JobView
from emberkeep.jobs.model import JobStatus

log = structlog.get_logger(__name__)

_INTERVAL_SECONDS = 30.0


async def keep_storage_clean(
    gateway: JobManagerGateway, layout: StateLayout, confirm: Callable[[], Awaitable[None]]
) -> None:
    """Look every half minute, for ever. ``confirm`` raises an EmberkeepError unless this JobManager leads."""
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        try:
            directories = await asyncio.to_thread(entries, layout.checkpoints)
            await confirm()
            jobs = await gateway.jobs()
        except EmberkeepError as error:
            log.warning("storage is not cleaned now", reason=str(error))
            continue
        await asyncio.to_thread(remove_needless, directories, jobs)


def remove_needless(directories: list[Path], jobs: list[JobView]) -> None:
    """Remove those of ``directories`` that no job needs; ``jobs``: all that the leader knew after they were listed."""
    keep = {job.job_id for job in jobs if job.status not in (JobStatus.FINISHED, JobStatus.CANCELED)}
    for directory in directories:
        if directory.name not in keep:
            log.info("removing the checkpoints of an ended job", job=directory.name)
            shutil.rmtree(directory, ignore_errors=True)


def entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []

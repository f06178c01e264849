"""Keeps the shared storage as small as its jobs: default checkpoints go when nothing needs them any more.

A default checkpoint lives as long as its job may run again: it goes when the job has FINISHED or was CANCELED, and with
the job's result when it FAILED (somebody may want to look at it).
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.state_layout import StateLayout
from emberkeep.jobmanager.views import JobManagerGateway, JobView
from emberkeep.jobs.model import JobStatus

log = structlog.get_logger(__name__)

_INTERVAL_SECONDS = 30.0


async def keep_storage_clean(gateway: JobManagerGateway, layout: StateLayout) -> None:
    """Look every half minute, for ever."""
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        try:
            jobs = await gateway.jobs()
        except EmberkeepError as error:
            log.warning("storage is not cleaned now", reason=str(error))
            continue
        await asyncio.to_thread(clean_storage, layout, jobs)


def clean_storage(layout: StateLayout, jobs: list[JobView]) -> None:
    """Remove what ``jobs`` (all that the JobManager knows) do not need."""
    keep = {job.job_id for job in jobs if job.status not in (JobStatus.FINISHED, JobStatus.CANCELED)}
    for directory in _entries(layout.checkpoints):
        if directory.name not in keep:
            log.info("removing the checkpoints of an ended job", job=directory.name)
            shutil.rmtree(directory, ignore_errors=True)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []

"""Logs of ended jobs are kept for the newest ones only."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

_INTERVAL_SECONDS = 60.0
_QUIET_SECONDS = 3600.0  # somebody may still read what was written within it


async def prune_logs(directory: Path, retained: int, live: Callable[[], AbstractSet[str]]) -> None:
    """Look every minute at the folders in ``directory`` (one per job), for ever. ``live``: jobs with processes here."""
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        await asyncio.to_thread(prune_once, directory, retained, live())


def prune_once(
    directory: Path, retained: int, live: AbstractSet[str], quiet_seconds: float = _QUIET_SECONDS
) -> list[str]:
    """Remove the folders of jobs that are not ``live``, except the ``retained`` newest and those changed within
    ``quiet_seconds`` of the newest of all. Returns the names."""
    if not directory.is_dir():
        return []
    ages = sorted(((_last_change(job), job) for job in directory.iterdir() if job.is_dir()), reverse=True)
    ended = [(changed, job) for changed, job in ages if job.name not in live]
    removed = []
    for changed, job in ended[retained:]:
        if ages[0][0] - changed > quiet_seconds:
            shutil.rmtree(job, ignore_errors=True)
            removed.append(job.name)
    return removed


def _last_change(job: Path) -> float:
    return max((path.stat().st_mtime for path in job.rglob("*")), default=job.stat().st_mtime)

"""Logs of ended jobs are kept for the newest ones only."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

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
    try:
        jobs = [job for job in directory.iterdir() if job.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("the logs of jobs cannot be listed now", directory=str(directory), reason=error.strerror)
        return []
    ages = sorted(((changed, job) for job in jobs if (changed := _last_change(job)) is not None), reverse=True)
    ended = [(changed, job) for changed, job in ages if job.name not in live]
    removed = []
    for changed, job in ended[retained:]:
        if ages[0][0] - changed > quiet_seconds:
            shutil.rmtree(job, ignore_errors=True)
            removed.append(job.name)
    return removed


def _last_change(job: Path) -> float | None:
    """Return when anything in a job's folder was changed last; None where that cannot be found out now."""
    newest = 0.0
    try:
        for path in (job, *job.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # it was removed in the meantime
                newest = max(newest, path.lstat().st_mtime)
    except OSError as error:
        log.warning("the logs of a job cannot be looked at now, and stay", directory=str(job), reason=error.strerror)
        return None
    return newest

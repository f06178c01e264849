"""Keeps only the logs of the newest ended jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path

import structlog

from emberkeep.base.files.hostile import remove_tree

log = structlog.get_logger(__name__)

_INTERVAL_SECONDS = 60.0
_MOST_FILES = 10_000  # of a folder, which a job may have filled, that are looked at


async def prune_logs(directory: Path, retained: int, min_age: float, live: Callable[[], AbstractSet[str]]) -> None:
    """Every minute until cancelled, delete old logs in ``directory``, which has one folder per job.

    ``retained``: number of jobs without a process here whose logs are kept, those with the newest logs. ``min_age``:
    seconds, see ``prune_once``. ``live``: returns the names of the folders to leave as they are, those of jobs that
    have processes on this task manager.
    """
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        await asyncio.to_thread(prune_once, directory, retained, min_age, live())


def prune_once(directory: Path, retained: int, min_age: float, live: AbstractSet[str]) -> list[str]:
    """Delete the folders of jobs that are not ``live``, except the ``retained`` newest. Return the deleted names.

    Folders whose last change was at most ``min_age`` seconds before the newest change in any folder stay as well.
    """
    try:
        jobs = [job for job in directory.iterdir() if job.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("cannot list the logs of jobs now", directory=str(directory), reason=error.strerror)
        return []
    ages = sorted(((changed, job) for job in jobs if (changed := _last_change(job)) is not None), reverse=True)
    ended = [(changed, job) for changed, job in ages if job.name not in live]
    removed = []
    for changed, job in ended[retained:]:
        if ages[0][0] - changed > min_age:
            remove_tree(job)
            removed.append(job.name)
    return removed


def _last_change(job: Path) -> float | None:
    """Return when a file in a job's folder was last changed; None if that cannot be read now.

    The job can set any time on its files: a time in the future counts as now.
    """
    newest, now = 0.0, time.time()
    try:
        for path in _within(job):
            with contextlib.suppress(FileNotFoundError):  # it was removed in the meantime
                newest = max(newest, min(now, path.lstat().st_mtime))
    except OSError as error:
        log.warning("cannot examine the logs of a job now; they are kept", directory=str(job), reason=error.strerror)
        return None
    return newest


def _within(job: Path) -> Iterator[Path]:
    """Yield a job's folder, the folders of its attempts, and their files. Raises OSError."""
    yield job
    for attempt in _entries(job):
        yield attempt
        yield from _entries(attempt)


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing if it is not a folder, is a link, or may not be read. Raises OSError."""
    try:
        if folder.is_symlink():
            return []
        with os.scandir(folder) as found:
            return [Path(entry.path) for entry in islice(found, _MOST_FILES)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []

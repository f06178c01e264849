"""Waiting for the places of checkpoints: a query never begins anew because its file system is away.

What an earlier attempt has kept is looked for only once the directory that it was kept in is there. Until then the
script waits, for as long as it takes, and says so. A person can cancel the job, or make the directory of the commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import structlog

from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.errors import is_directory
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.notices import Notices

log = structlog.get_logger(__name__)

_PAUSE = 1.0  # seconds between two looks
_COMMITS = "commits"  # Spark's log of them, in a checkpoint


class CheckpointPlaces:
    """``require_own``: raises Unavailable while the directory of all jobs' checkpoints is away. ``committed``:
    locations of checkpoints to which earlier attempts have committed. Any thread may call it."""

    def __init__(self, require_own: Callable[[], None], committed: Collection[str], notices: Notices) -> None:
        self._require_own = require_own
        self._committed = frozenset(committed)
        self._notices = notices

    def require_own(self) -> None:
        """Before anything is written below the job's own root. Raises Unavailable."""
        self._require_own()

    def wait_for_own(self) -> None:
        """Returns once it can be told what lies below the job's own root."""
        self._wait(self._require_own)

    def wait_for(self, session: Any, location: str, reached: str) -> None:
        """Return once the checkpoint at a location has commits, unless nothing was ever committed to it. ``reached``:
        where Spark finds what people know as ``location``."""
        if location not in self._committed:
            return
        files = HadoopFiles(session)
        path = files.path_on_disk(location)
        if path is not None:
            self._wait(lambda: _require(Path(path)))
        else:
            self._wait(lambda: _require_elsewhere(files, location, reached))

    def _wait(self, look: Callable[[], None]) -> None:
        waits = False
        while True:
            try:
                look()
            except Unavailable as error:
                if not waits:
                    log.warning("waits for checkpoints", reason=str(error))
                    self._notices.say(f"waits for its checkpoints: {error}")
                waits = True
                time.sleep(_PAUSE)
            else:
                break
        if waits:
            log.info("checkpoints are there again")


def _require(checkpoint: Path) -> None:
    """Raises Unavailable."""
    # A directory alone proves nothing: it may be the mount point, or one that was made below it.
    if not is_directory(checkpoint / _COMMITS):
        raise _without_commits(str(checkpoint), "holds no commits" if is_directory(checkpoint) else "is not there")


def _require_elsewhere(files: HadoopFiles, location: str, reached: str) -> None:
    """Raises Unavailable."""
    try:
        is_there = files.exists(f"{reached.rstrip('/')}/{_COMMITS}")
    except Fatal as error:  # the start of the query raises it
        log.warning("the checkpoint cannot be looked at", location=location, reason=str(error))
        return
    if not is_there:
        raise _without_commits(location, "holds no commits")


def _without_commits(location: str, finding: str) -> Unavailable:
    return Unavailable(
        f"{location} {finding}, but earlier attempts have committed to this checkpoint",
        hint="check that its file system is mounted; if you removed the checkpoint on purpose, make the directory "
        f"{location.rstrip('/')}/{_COMMITS}: the query begins from nothing then",
    )

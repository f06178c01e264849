"""Wait for the storage of checkpoints, so that a query never starts from nothing because a file system is unavailable.

A checkpoint of an earlier attempt is opened only once its directory exists. Until then the script waits without a time
limit, and a message reports the wait. A user can cancel the job, or create the directory ``commits`` to start from
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import structlog

from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.errors import is_directory
from emberkeep.spark.availability import wait_until_available
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.notices import Notices

log = structlog.get_logger(__name__)

_COMMITS = "commits"  # directory of Spark's commit log in a checkpoint


class CheckpointPlaces:
    """Waits for the directories of checkpoints. Any thread may use it.

    ``require_own``: raises Unavailable while the directory of all jobs' checkpoints is unavailable. ``committed``:
    locations of checkpoints to which earlier attempts have committed.
    """

    def __init__(self, require_own: Callable[[], None], committed: Collection[str], notices: Notices) -> None:
        self._require_own = require_own
        self._committed = frozenset(committed)
        self._notices = notices

    def require_own(self) -> None:
        """Raise Unavailable if the job's own root is unavailable. Call this before each write below that root."""
        self._require_own()

    def wait_for_own(self) -> None:
        """Wait until the job's own root is available."""
        self._wait(self._require_own)

    def wait_for(self, session: Any, location: str, reached: str) -> None:
        """Wait until the checkpoint at ``location`` has its commit log, if earlier attempts have committed to it.

        ``reached``: location at which Spark reaches the same checkpoint. Return if Spark's file system raises an error,
        because the start of the query raises it again.
        """
        if location not in self._committed:
            return
        files = HadoopFiles(session)
        path = files.path_on_disk(location)
        if path is not None:
            self._wait(lambda: _require(Path(path)))
        else:
            self._wait(lambda: _require_elsewhere(files, location, reached))

    def _wait(self, look: Callable[[], None]) -> None:
        wait_until_available(look, "checkpoints", self._notices)


def _require(checkpoint: Path) -> None:
    """Raise Unavailable if this checkpoint on a local disk has no commit log."""
    # A directory alone proves nothing: it may be the mount point, or have been made inside the mount point.
    if not is_directory(checkpoint / _COMMITS):
        raise _without_commits(str(checkpoint), "has no commit log" if is_directory(checkpoint) else "does not exist")


def _require_elsewhere(files: HadoopFiles, location: str, reached: str) -> None:
    """Raise Unavailable if this checkpoint has no commit log. Log any other error and return."""
    try:
        is_there = files.exists(f"{reached.rstrip('/')}/{_COMMITS}")
    except Fatal as error:  # the start of the query raises it again
        log.warning("cannot examine the checkpoint", location=location, reason=str(error))
        return
    if not is_there:
        raise _without_commits(location, "has no commit log")


def _without_commits(location: str, finding: str) -> Unavailable:
    return Unavailable(
        f"{location} {finding}, but earlier attempts have committed to this checkpoint",
        hint="check that its file system is mounted; if you removed the checkpoint on purpose, create the "
        f"directory {location.rstrip('/')}/{_COMMITS}: the query then starts from nothing",
    )

"""Waiting for the places of checkpoints: a query never begins anew because its file system is away.

What an earlier attempt has kept is looked for only once the directory that it was kept in is there. Until then the
script waits, for as long as it takes, and says so; a person can cancel the job, or make the directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import structlog

from emberkeep.base.errors import Unavailable
from emberkeep.base.file_errors import is_directory
from emberkeep.spark.hadoop_files import HadoopFiles
from emberkeep.spark.notices import Notices

log = structlog.get_logger(__name__)

_PAUSE = 1.0  # seconds between two looks


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

    def wait_for(self, session: Any, location: str) -> None:
        """Returns once the checkpoint at a location is there, unless nothing was ever committed to it."""
        if location not in self._committed:
            return
        path = HadoopFiles(session).path_on_disk(location)
        if path is not None:
            self._wait(lambda: _require(Path(path)))

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


def _require(directory: Path) -> None:
    """Raises Unavailable."""
    if not is_directory(directory):
        raise Unavailable(
            f"{directory} is not there, but earlier attempts have committed to this checkpoint",
            hint="check that its file system is mounted; to begin the query from nothing, make that directory",
        )

"""The batches that earlier attempts of this process's job have committed, for functions that keep their own output.

A function that finds no trace of its own work cannot distinguish a new output from one whose file system is
unavailable. The job store can: it records the batches that earlier attempts have committed.
"""

from __future__ import annotations

import re
import threading

NO_BATCH = -1
_SCHEME_AND_HOST = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


class EarlierCommits:
    """The newest committed batch for each checkpoint path. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[str, int] = {}

    def note(self, checkpoint: str, batch: int) -> None:
        with self._lock:
            self._batches[_path(checkpoint)] = batch

    def newest(self, checkpoint: str) -> int:
        """Return the newest batch that earlier attempts have committed to this checkpoint; NO_BATCH for none."""
        with self._lock:
            return self._batches.get(_path(checkpoint), NO_BATCH)


def _path(location: str) -> str:
    """Return the part of a location that Spark does not rewrite: /c, file:/c and file:///c are one checkpoint.

    A "#" or "?" is part of the path, as in Hadoop's ``Path``.
    """
    return "/" + _SCHEME_AND_HOST.sub("", location).strip("/")


EARLIER_COMMITS = EarlierCommits()

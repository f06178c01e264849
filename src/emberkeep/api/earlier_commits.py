"""The batches that earlier attempts of this process's job have committed, for functions that keep their own output.

A function that finds no trace of its own work cannot distinguish a new output from one whose file system is
unavailable. The job store can: it records the batches that earlier attempts have committed.
"""

from __future__ import annotations

import re
import threading

NO_BATCH = -1
_SCHEME_AND_HOST = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?")
_PORT = re.compile(r":[0-9]*\Z")


class EarlierCommits:
    """The newest committed batch for each checkpoint path. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._batches: dict[tuple[str, str], int] = {}  # by path, and bucket or host

    def note(self, checkpoint: str, batch: int) -> None:
        with self._lock:
            self._batches[_place(checkpoint)] = batch

    def newest(self, checkpoint: str) -> int:
        """Return the newest batch that earlier attempts have committed to this checkpoint; NO_BATCH for none.

        A location without a bucket or host is in the default file system, which may be any: it matches all of them.
        """
        path, host = _place(checkpoint)
        with self._lock:
            found = (
                batch
                for (known, where), batch in self._batches.items()
                if known == path and (where == host or not where or not host)
            )
            return max(found, default=NO_BATCH)


def _place(location: str) -> tuple[str, str]:
    """Return path, and bucket or host, of a location: /c, file:/c and file:///c are one checkpoint.

    A "#" or "?" is part of the path, as in Hadoop's ``Path``.
    """
    found = _SCHEME_AND_HOST.match(location)
    host = "" if found is None or found[1].lower() == "file" else _PORT.sub("", found[2] or "").lower()
    return "/" + _SCHEME_AND_HOST.sub("", location).strip("/"), host


EARLIER_COMMITS = EarlierCommits()

"""A savepoint in an object store: S3, Google Cloud Storage or Azure, ``<prefix>/<name>``.

There are no directories and no renames. One request stores a small file, an upload in parts a large one; the file is
durable once the store has replied. Only blocking calls are used, see ``adapters.blobs.objects``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore

from emberkeep.adapters.object_store.clients import parse_object_location
from emberkeep.adapters.state.object_requests import PART_BYTES, ObjectRequests
from emberkeep.adapters.state.source import opened_source
from emberkeep.base.errors import UnknownOutcome

PAUSE_SECONDS = 2.0  # before a file is stored again: the store is busy, and other files are sent to it, too
_LISTED_AT_ONCE = 1000


class StoredSavepoint:
    """Implements ``lifecycle.ports.SavepointObjects``."""

    def __init__(self, location: str, pause: Callable[[float], None] = time.sleep) -> None:
        """``pause``: waits for some seconds. Raises Fatal if ``location`` is malformed."""
        self._pause = pause
        self._requests = ObjectRequests(parse_object_location(location, "the savepoint"))

    def put(self, name: str, source: Path) -> None:
        try:
            self._put(name, source)
        except UnknownOutcome:  # a repetition writes the same bytes, whatever the store has done
            self._pause(PAUSE_SECONDS)
            self._put(name, source)

    def _put(self, name: str, source: Path) -> None:
        with opened_source(source) as file:
            size = file.size()
            if size > PART_BYTES:
                self._requests.put_parts(name, file, size)
            else:
                self.write(name, b"".join(iter(lambda: file.read(PART_BYTES), b"")))

    def write(self, name: str, data: bytes) -> None:
        self._requests.put(name, data, overwrite=True)

    def read(self, name: str) -> Iterator[bytes]:
        return self._requests.pieces(self._requests.get(name, 0, None), name)

    def remove(self, first: str) -> None:
        self._requests.delete([first])
        with self._requests.errors("list", ""):
            batches = obstore.list(self._requests.store, None, chunk_size=_LISTED_AT_ONCE)
            names = [each["path"] for batch in batches for each in batch]
        self._requests.delete(names)

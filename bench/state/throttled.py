"""A durable store of state that is as far away as a remote one: a bandwidth that all share, a delay per request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from emberkeep.local_state.model import FileStatus
from emberkeep.local_state.ports import DurableState

BYTES_PER_SECOND = 100e6
REQUEST_SECONDS = 0.020


class Link:
    """The way to the store. Bytes take their turn on it; requests wait side by side."""

    def __init__(self, bytes_per_second: float = BYTES_PER_SECOND, request_seconds: float = REQUEST_SECONDS) -> None:
        self._pace = bytes_per_second
        self._request = request_seconds
        self._lock = threading.Lock()
        self._free_at = 0.0

    def request(self) -> None:
        time.sleep(self._request)

    def carry(self, size: int) -> None:
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._pace
            wait = self._free_at - time.monotonic()
        time.sleep(max(0.0, wait))


class ThrottledState:
    """Implements ``local_state.ports.DurableState`` over another one."""

    def __init__(self, store: DurableState, link: Link) -> None:
        self._store = store
        self._link = link

    @property
    def location(self) -> str:
        return self._store.location

    def status(self, name: str) -> FileStatus:
        self._link.request()
        return self._store.status(name)

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        self._link.request()
        return self._store.listing(name)

    def make_directory(self, name: str) -> None:
        self._link.request()
        self._store.make_directory(name)

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        self._link.request()
        self._link.carry(source.stat().st_size)
        return self._store.create(name, source, overwrite=overwrite)

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        self._link.request()
        status, pieces = self._store.read(name, offset, length)
        return status, self._carried(pieces)

    def _carried(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._link.carry(len(piece))
            yield piece

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        self._link.request()
        return self._store.rename(source, target, overwrite=overwrite)

    def delete(self, name: str, *, recursive: bool) -> bool:
        self._link.request()
        return self._store.delete(name, recursive=recursive)

    def close(self) -> None:
        self._store.close()

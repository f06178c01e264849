"""An HA store in an object store: S3, Google Cloud Storage or Azure, ``<prefix>/<owner>/<key>``.

We run obstore's blocking calls in threads. Its asyncio calls can crash the process if the interpreter ends while one of
them completes.

An interrupted upload leaves no object. Its parts may remain in the bucket until a lifecycle rule removes them ("abort
incomplete multipart uploads").
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import structlog
from obstore.exceptions import BaseError

from emberkeep.adapters.blobs.files_copy import cannot_store
from emberkeep.adapters.blocking.file_threads import EndSignal, StoreThreads, in_time_for
from emberkeep.adapters.object_store.clients import open_object_store, parse_object_location
from emberkeep.adapters.object_store.errors import object_store_error
from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.files.errors import disk_fails
from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, StoredBlob, parse_blob_key

_THREADS = 8
_PART_BYTES = 8 * 1024**2  # of one request; larger BLOBs are transferred in parallel parts
_PARTS_AT_ONCE = 3
_DELETED_AT_ONCE = 1000
_LEAST_SECONDS = 60.0  # for one call, including retries
_SLOWEST_PACE = 256 * 1024  # bytes per second; a transfer also gets the time that its size takes at this pace

log = structlog.get_logger(__name__)


class ObjectBlobs:
    """Implements ``blobs.ports.BlobStorage``."""

    def __init__(self, location: str, *, patience: float = _LEAST_SECONDS) -> None:
        """``location``: s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Raises Fatal."""
        address = parse_object_location(location, "the HA store")
        self._location = str(address)
        with self._errors("use"):
            self._store = open_object_store(address)
        self._threads = StoreThreads(_THREADS, self._location, patience=patience)
        self._parts = ThreadPoolExecutor(_THREADS, "ha-store-part")
        self._reported: set[str] = set()

    @property
    def location(self) -> str:
        return self._location

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        await self._threads.run(lambda abort: self._put(owner, key, file, abort))

    def _put(self, owner: JobId, key: BlobKey, file: Path, abort: EndSignal) -> None:
        path = _path(owner, key)
        try:
            size = file.stat().st_size
            data = file.read_bytes() if size <= _PART_BYTES else b""
        except OSError as error:
            raise disk_fails(file, error) from error
        abort.extra = size / _SLOWEST_PACE
        with self._errors("store"):
            if size <= _PART_BYTES:
                _check(owner, key, hashlib.sha256(data).hexdigest(), file)
                obstore.put(self._store, path, data, use_multipart=False)
            else:
                pieces = _pieces(owner, key, file, abort)
                obstore.put(self._store, path, pieces, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
            stored = obstore.head(self._store, path)["size"]
        if stored != size:
            raise RetryLater(f"{self.location} stored {stored} bytes of BLOB {key} of {size} that were sent")

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        await self._threads.run(lambda abort: self._fetch(owner, key, destination, abort))

    def _fetch(self, owner: JobId, key: BlobKey, destination: Path, abort: EndSignal) -> None:
        size = self._size(owner, key)
        abort.extra = size / _SLOWEST_PACE
        try:
            file = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot_store(destination, error) from error
        try:
            self._fetch_parts(_path(owner, key), size, file, destination, abort)
        except BaseException:
            destination.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def _fetch_parts(self, path: str, size: int, file: int, destination: Path, abort: EndSignal) -> None:
        def fetch(start: int) -> None:
            abort.check()
            length = min(_PART_BYTES, size - start)
            with self._errors("read"):
                data = memoryview(obstore.get_range(self._store, path, start=start, length=length))
            if len(data) != length:
                raise RetryLater(f"{self.location} sent {len(data)} bytes of {length} requested")
            try:
                while data:
                    written = os.pwrite(file, data, start)
                    data, start = data[written:], start + written
            except OSError as error:
                raise cannot_store(destination, error) from error

        starts = range(0, size, _PART_BYTES)
        for window in range(0, len(starts), _PARTS_AT_ONCE):
            futures = [self._parts.submit(fetch, start) for start in starts[window : window + _PARTS_AT_ONCE]]
            errors = [future.exception() for future in futures]  # waits for all: no thread writes the file after this
            for error in errors:
                if error is not None:
                    raise error

    async def size(self, owner: JobId, key: BlobKey) -> int:
        return await self._threads.run(lambda _: self._size(owner, key))

    def _size(self, owner: JobId, key: BlobKey) -> int:
        with self._errors("read"):
            return obstore.head(self._store, _path(owner, key))["size"]

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        paths, in_time = [_path(owner, key) for key in keys], in_time_for(within, self.location)
        await self._threads.run(lambda abort: self._delete(paths, abort, in_time))

    async def delete_owner(self, owner: JobId) -> None:
        def delete(abort: EndSignal) -> None:
            in_time = in_time_for(math.inf, self.location)
            for paths in self._list(f"{owner}/"):
                self._delete([path for path, _, _ in paths], abort, in_time)

        await self._threads.run(delete)

    def _delete(self, paths: list[str], abort: EndSignal, in_time: Callable[[], None]) -> None:
        for begin in range(0, len(paths), _DELETED_AT_ONCE):
            abort.check()
            in_time()
            batch = paths[begin : begin + _DELETED_AT_ONCE]
            try:
                with self._errors("delete"):
                    obstore.delete(self._store, batch)
            except Absent:
                # Some kinds of store stop at the first missing object: delete one by one.
                for path in batch:
                    in_time()
                    with contextlib.suppress(Absent), self._errors("delete"):
                        obstore.delete(self._store, path)

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        return await self._threads.run(lambda _: self._listing())

    def _listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        found: dict[JobId, list[StoredBlob]] = {}
        for objects in self._list(None):
            for path, size, modified_ms in objects:
                owner, _, name = path.partition("/")
                if path == OWNER_FILE:
                    continue
                try:
                    blobs = found.setdefault(parse_job_id(owner), [])
                    blobs.append(StoredBlob(key=parse_blob_key(name), size=size, modified_ms=modified_ms))
                except InvalidInput:
                    self._report(path)
        return {owner: tuple(sorted(blobs, key=lambda blob: blob.key)) for owner, blobs in sorted(found.items())}

    def _list(self, prefix: str | None) -> Iterator[list[tuple[str, int, int]]]:
        """Yield path, size and modification time (ms since 1970) of the objects, one batch per request."""
        with self._errors("list"):
            for batch in obstore.list(self._store, prefix, chunk_size=_DELETED_AT_ONCE):
                yield [(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000)) for meta in batch]

    def _report(self, path: str) -> None:
        if path not in self._reported and len(self._reported) < _DELETED_AT_ONCE:
            self._reported.add(path)
            log.warning("ignoring a foreign object in a BLOB store", path=f"{self.location}/{path}")

    async def close(self) -> None:
        """Do nothing: connections end with the process."""

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except EmberkeepError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise object_store_error(f"cannot {verb} BLOBs in {self._location}", error) from None


def _path(owner: JobId, key: BlobKey) -> str:
    return f"{owner}/{key}"


def _pieces(owner: JobId, key: BlobKey, file: Path, abort: EndSignal) -> Iterator[bytes]:
    """Yield the file's bytes in parts. An error raised here aborts the upload, and the store drops the parts it has.

    Raises RetryLater, Fatal, and at the end Damaged if the bytes do not match ``key``.
    """
    digest = hashlib.sha256()
    try:
        with file.open("rb", buffering=0) as opened:
            while data := opened.read(_PART_BYTES):
                abort.check()
                digest.update(data)
                yield data
    except OSError as error:
        raise disk_fails(file, error) from error
    _check(owner, key, digest.hexdigest(), file)


def _check(owner: JobId, key: BlobKey, actual: str, file: Path) -> None:
    if actual != key.sha256:
        raise DamagedBlob(owner, key, actual, str(file))

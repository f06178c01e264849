"""A BLOB in transfer from a peer to the disk: receives, hashes and writes at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterable
from pathlib import Path

from emberkeep.adapters.blocking.file_threads import DiskThreads
from emberkeep.adapters.blocking.threads import ended
from emberkeep.base.errors import InvalidInput
from emberkeep.blobs.model import BlobKey

_BATCH_BYTES = 1024**2  # written by one thread call, while the next batch is received
_SYNC_BYTES = 32 * 1024**2  # written since the last sync; then sync, so that the disk works while more is received
_WRITEV_PIECES = 512


class IncomingBlob:
    """One file in transfer. Its methods block. Calls must not overlap, except that ``sync`` may overlap others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._digest = hashlib.sha256()
        self._file: int | None = None

    def write(self, pieces: list[bytes]) -> None:
        """Append ``pieces``. Raises OSError."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        for piece in pieces:
            self._digest.update(piece)
        for begin in range(0, len(pieces), _WRITEV_PIECES):
            _write_all(self._file, pieces[begin : begin + _WRITEV_PIECES])
        self.size += sum(map(len, pieces))

    def sync(self) -> None:
        """Sync what was written so far; more may be written at the same time. Raises OSError."""
        if self._file is not None:
            os.fdatasync(self._file)

    def finish(self, pieces: list[bytes], key: BlobKey) -> None:
        """Append the last ``pieces``, check the SHA-256 and make the file durable. Raises InvalidInput, OSError."""
        self.write(pieces)
        actual = self._digest.hexdigest()
        if actual != key.sha256:
            raise InvalidInput(
                f"the content's SHA-256 is {actual}, not {key.sha256}", field="sha256", hint="upload it again"
            )
        assert self._file is not None  # noqa: S101
        os.fsync(self._file)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            descriptor, self._file = self._file, None
            os.close(descriptor)

    def discard(self) -> None:
        """Close and delete the file. Idempotent; ignores errors."""
        with contextlib.suppress(OSError):
            self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _write_all(file: int, pieces: list[bytes]) -> None:
    written = os.writev(file, pieces)
    for piece in pieces:  # after a short write, which is rare, write the rest piece by piece
        if written >= len(piece):
            written -= len(piece)
            continue
        rest = memoryview(piece)[written:]
        written = 0
        while rest:
            rest = rest[os.write(file, rest) :]


class Intake:
    """Hands received bytes to threads: one writes a batch while the next arrives, another syncs what is written."""

    def __init__(self, threads: DiskThreads, incoming: IncomingBlob) -> None:
        self._threads = threads
        self._incoming = incoming
        self._writing: asyncio.Future[None] | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._unsynced = 0

    async def take(self, chunks: AsyncIterable[bytes], *, max_size: int, size: int | None) -> list[bytes]:
        """Write the bytes that ``chunks`` yields, except the last ones, and return those.

        The caller writes the returned bytes with ``finish``, so a small BLOB needs only one thread call. Raises
        InvalidInput (more than ``max_size`` bytes, or not ``size``), OSError, and what ``chunks`` raises. After an
        error no thread is still writing.
        """
        received, waiting = 0, 0
        pieces: list[bytes] = []
        limit = max_size if size is None else min(size, max_size)
        try:
            async for chunk in chunks:
                received += len(chunk)
                if received > limit:
                    raise _too_large(received, max_size, size)
                pieces.append(chunk)
                waiting += len(chunk)
                if waiting >= _BATCH_BYTES:
                    await self._write(pieces, waiting)
                    pieces, waiting = [], 0
            if size is not None and received != size:
                raise InvalidInput(f"the BLOB has {received} bytes, not {size}", field="size", hint="upload it again")
            for future in (self._writing, self._syncing):
                if future is not None:
                    await asyncio.shield(future)
        finally:
            for future in (self._writing, self._syncing):
                if future is not None:
                    await ended(future)
        return pieces

    async def _write(self, batch: list[bytes], size: int) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)
            if self._unsynced >= _SYNC_BYTES and (self._syncing is None or self._syncing.done()):
                if self._syncing is not None:
                    self._syncing.result()  # raises if the last sync failed: a disk reports an error only once
                self._syncing = self._threads.start(self._incoming.sync)
                self._unsynced = 0
        self._writing = self._threads.start(lambda: self._incoming.write(batch))
        self._unsynced += size


def _too_large(received: int, max_size: int, size: int | None) -> InvalidInput:
    if size is not None and received > size:
        return InvalidInput(f"the BLOB has more than the announced {size} bytes", field="size", hint="upload it again")
    return InvalidInput(f"the BLOB is larger than {max_size} bytes", field="body", hint="see blob.max-size")

"""Upload a job's files as one group (BLOB-6): only missing ones, several at a time, verified by the JobManager."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from emberkeep.base.errors import InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_files import hash_file

PARALLEL = 4
_ROUNDS = 3  # each announces the group again and uploads what is still missing
_CHUNK = 1024**2  # bytes


class UploadProgress(Protocol):
    """The receiver of an upload's progress."""

    def begin(self, files: int, size: int) -> None:
        """Called at the start, and again when an upload is resumed: ``files`` files with ``size`` bytes are missing."""

    def file(self, name: str) -> None:
        """Called when the upload of a file begins."""

    def sent(self, count: int) -> None:
        """Called when ``count`` more bytes were sent. A negative count takes back bytes that must be sent again."""

    def end(self) -> None:
        """Called at the end."""


@dataclass(frozen=True)
class UploadItem:
    """Content to upload: a file, or bytes. ``name`` is what messages to the user call it."""

    name: str
    content: BlobContent
    source: Path | bytes

    @property
    def key(self) -> BlobKey:
        return BlobKey(kind=self.content.kind, sha256=self.content.sha256)

    def open(self) -> BinaryIO:
        return BytesIO(self.source) if isinstance(self.source, bytes) else self.source.open("rb")


async def upload_group(
    client: RestClient, job_id: JobId, items: Collection[UploadItem], progress: UploadProgress
) -> None:
    """Upload the missing contents of a group.

    Raises InvalidInput, for example if a file changes during the upload, and what RestClient raises.
    """
    try:
        for last in (False,) * (_ROUNDS - 1) + (True,):
            missing = set(await client.blobs.open_group(job_id, [item.content for item in items]))
            try:
                await _upload_all(client, job_id, [item for item in items if item.content.sha256 in missing], progress)
            except RetryLater:
                if last:
                    raise
            else:
                return
    finally:
        progress.end()


async def _upload_all(client: RestClient, job_id: JobId, items: list[UploadItem], progress: UploadProgress) -> None:
    if not items:
        return
    progress.begin(len(items), sum(item.content.size for item in items))
    waiting = deque(items)

    async def work() -> None:
        while waiting:
            item = waiting.popleft()
            progress.file(item.name)
            await _upload(client, job_id, item, progress.sent)

    workers = [asyncio.create_task(work(), name=f"upload-{number}") for number in range(min(PARALLEL, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _upload(client: RestClient, job_id: JobId, item: UploadItem, sent: Callable[[int], None]) -> None:
    body = _Body(item, sent)
    try:
        await client.blobs.upload(job_id, item.key, body.start, item.content.size)
    except (InvalidInput, RetryLater):
        body.check()
        if isinstance(item.source, Path) and not await asyncio.to_thread(_is_as_hashed, item.source, item.content):
            raise _changed(item.source) from None
        raise


def _is_as_hashed(path: Path, content: BlobContent) -> bool:
    try:
        return hash_file(path) == (content.sha256, content.size)
    except InvalidInput:
        return False


class _Body:
    """One item's bytes, from the start for each try."""

    def __init__(self, item: UploadItem, sent: Callable[[int], None]) -> None:
        self._item = item
        self._sent = sent
        self._total = 0
        self._changed = False

    def start(self) -> AsyncIterator[bytes]:
        """Return the bytes for a new try. Raises InvalidInput if an earlier try found the file changed."""
        self.check()
        self._sent(-self._total)
        self._total = 0
        return self._chunks()

    def check(self) -> None:
        """Raise InvalidInput if an earlier try found the file changed."""
        if self._changed and isinstance(self._item.source, Path):
            raise _changed(self._item.source)

    async def _chunks(self) -> AsyncIterator[bytes]:
        left = self._item.content.size
        try:
            with await self._open() as source:
                while chunk := await asyncio.to_thread(source.read, min(_CHUNK, left + 1)):
                    left -= len(chunk)
                    if left < 0:
                        break
                    yield chunk
                    self._total += len(chunk)
                    self._sent(len(chunk))
        except OSError:
            left = -1  # it could be read when it was hashed, so it has been removed or changed since
        if left != 0:
            self._changed = True
            raise ValueError("the file is longer or shorter than it was")  # ends this try

    async def _open(self) -> BinaryIO:
        opening = _Opening(self._item)
        try:
            return await asyncio.to_thread(opening.open)
        except asyncio.CancelledError:
            opening.give_up()
            raise


class _Opening:
    """Opens a file in a thread, which goes on if nobody waits for it any more: then it closes the file itself."""

    def __init__(self, item: UploadItem) -> None:
        self._item = item
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._given_up = False

    def open(self) -> BinaryIO:
        file = self._item.open()
        with self._lock:
            self._file = file
            if self._given_up:
                file.close()
        return file

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            if self._file is not None:
                self._file.close()


def _changed(path: Path) -> InvalidInput:
    """Return the error for a file that changed after it was hashed and before it was uploaded."""
    return InvalidInput(
        f"{path} changed while it was uploaded", hint="submit again when no process writes to the file, or send a copy"
    )

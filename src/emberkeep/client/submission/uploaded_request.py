"""Send a request whose files are uploaded first, to a cluster whose leader may change in between.

A new leader has what is in the HA store, but not what only the previous leader held. The client then announces the
files again, uploads what is missing and sends the same request again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from emberkeep.base.errors import RetryLater
from emberkeep.blobs.errors import NotUploaded
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadProgress

SILENCE = 60.0  # seconds
_LOSSES = 10  # how often the uploads may be lost
_PAUSE = 0.5  # seconds

T = TypeVar("T")


class UploadedRequest:
    """The tries of one request. ``notice`` gets a line when something must be repeated.

    ``silence``: seconds without progress after which ``send`` fails, once a JobManager has been reached.
    """

    def __init__(
        self, client: RestClient, progress: UploadProgress, notice: Callable[[str], None], *, silence: float
    ) -> None:
        self._client = client
        self._progress = _Watched(progress, silence)
        self._notice = notice
        self._silence = silence
        self._trouble = ProblemClock(silence)

    async def send(self, upload_and_ask: Callable[[UploadProgress], Awaitable[T]]) -> T:
        """Repeat ``upload_and_ask`` until it succeeds.

        Raises what it raises: NotUploaded if the uploads were lost too often, RetryLater if there is no progress.
        """
        losses = 0
        while True:
            try:
                return await upload_and_ask(self._progress)
            except NotUploaded as error:
                losses += 1
                if losses > _LOSSES:
                    raise
                self._notice(f"the JobManager has lost uploaded files: uploading them again ({error.message})")
            except RetryLater as error:
                await self._wait(error)

    async def _wait(self, error: RetryLater) -> None:
        """Pause before the next try.

        Raises ``error`` instead if there has been no progress for too long, or if no JobManager was ever reached.
        """
        if self._progress.has_moved():
            self._trouble.reset()
        told = self._trouble.is_running
        if not self._client.has_met or self._trouble.is_over():
            raise error
        if not told:
            self._notice(f"{error.message}; trying again for {self._silence:.0f} s")
        await asyncio.sleep(_PAUSE)


class _Watched:
    """An UploadProgress that records whether the upload gets on.

    It does when less is left than ever before, or while one try sends for ``patience`` seconds. The same few bytes,
    sent again and refused again, are no progress.
    """

    def __init__(self, progress: UploadProgress, patience: float) -> None:
        self._progress = progress
        self._patience = patience
        self._moved = False
        self._began = time.monotonic()
        self._left = 0  # bytes that this try has not sent yet
        self._least: int | None = None  # bytes that were left at the best moment of all tries

    def has_moved(self) -> bool:
        """True if the upload has got on since the last call."""
        moved, self._moved = self._moved, False
        return moved

    def begin(self, files: int, size: int) -> None:
        self._began, self._left = time.monotonic(), size
        self._progress.begin(files, size)

    def file(self, name: str) -> None:
        self._progress.file(name)

    def sent(self, count: int) -> None:
        self._left -= count
        if self._least is None or self._left < self._least:
            self._least, self._moved = self._left, True
        elif count > 0 and time.monotonic() - self._began >= self._patience:
            self._moved = True
        self._progress.sent(count)

    def end(self) -> None:
        self._progress.end()

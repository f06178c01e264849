"""Submit a job to a cluster whose leader may change between the first upload and the acceptance.

A new leader has what is in the HA store, but not what only the previous leader held. The client then announces the
files again, uploads what is missing and posts the same job again, with the same id and idempotency key. The job is
therefore accepted once, however often it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import NotUploaded
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadProgress
from emberkeep.client.submission.preparation import PreparedJob, upload

SILENCE = 60.0  # seconds
_LOSSES = 10  # how often the uploads may be lost
_PAUSE = 0.5  # seconds


class JobSubmitting:
    """Submit one job. ``posted`` is true once the cluster may have accepted it."""

    def __init__(
        self,
        client: RestClient,
        job: PreparedJob,
        progress: UploadProgress,
        notice: Callable[[str], None],
        *,
        silence: float = SILENCE,
    ) -> None:
        """``notice`` gets a line when something must be repeated.

        ``silence``: seconds without progress after which ``run`` fails, once a JobManager has been reached.
        """
        self._client = client
        self._job = job
        self._job_id = JobId(job.submission.jobid)  # the client's own choice, so no other job has it
        self._progress = _Watched(progress)
        self._notice = notice
        self._silence = silence
        self._trouble = ProblemClock(silence)
        self.posted = False

    async def run(self) -> JobId:
        """Return the accepted job's id.

        Raises InvalidInput (a file changes; NotUploaded: the uploads were lost too often), what RestClient raises, and
        RetryLater if there is no progress.
        """
        losses = 0
        while True:
            try:
                return await self._send()
            except NotUploaded as error:
                losses += 1
                if losses > _LOSSES:
                    raise
                self._notice(f"the JobManager has lost uploaded files: uploading them again ({error.message})")
            except RetryLater as error:
                await self._wait(error)

    async def _send(self) -> JobId:
        # The reply to an earlier post may have been lost. A job that has ended since then accepts no uploads.
        if self.posted and await self._is_accepted():
            return self._job_id
        submission = await upload(self._client, self._job, self._progress)
        self.posted = True
        return (await self._client.submit(submission)).jobid

    async def _is_accepted(self) -> bool:
        try:
            await self._client.job(self._job_id)
        except Absent:
            return False
        return True

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
    """An UploadProgress that records whether anything was sent."""

    def __init__(self, progress: UploadProgress) -> None:
        self._progress = progress
        self._moved = False

    def has_moved(self) -> bool:
        """True if bytes have been sent since the last call."""
        moved, self._moved = self._moved, False
        return moved

    def begin(self, files: int, size: int) -> None:
        self._progress.begin(files, size)

    def file(self, name: str) -> None:
        self._progress.file(name)

    def sent(self, count: int) -> None:
        self._moved = self._moved or count > 0
        self._progress.sent(count)

    def end(self) -> None:
        self._progress.end()

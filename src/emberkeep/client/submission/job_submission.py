"""Submit a job to a cluster whose leader may change between the first upload and the acceptance.

Each try posts the same job, with the same id and idempotency key. The job is therefore accepted once, however often it
is sent.
"""

from __future__ import annotations

from collections.abc import Callable

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadProgress
from emberkeep.client.submission.preparation import PreparedJob, upload
from emberkeep.client.submission.uploaded_request import SILENCE, UploadedRequest


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
        """``notice`` and ``silence``: see UploadedRequest."""
        self._client = client
        self._job = job
        self._job_id = JobId(job.submission.jobid)  # the client's own choice, so no other job has it
        self._request = UploadedRequest(client, progress, notice, silence=silence)
        self.posted = False

    async def run(self) -> JobId:
        """Return the accepted job's id.

        Raises InvalidInput (a file changes; NotUploaded: the uploads were lost too often), what RestClient raises, and
        RetryLater if there is no progress.
        """
        return await self._request.send(self._send)

    async def _send(self, progress: UploadProgress) -> JobId:
        # The reply to an earlier post may have been lost. A job that has ended since then accepts no uploads.
        if self.posted and await self._is_accepted():
            return self._job_id
        submission = await upload(self._client, self._job, progress)
        self.posted = True
        return (await self._client.submit(submission)).jobid

    async def _is_accepted(self) -> bool:
        try:
            await self._client.job(self._job_id)
        except Absent:
            return False
        return True

"""REST API calls for BLOBs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey
from emberkeep.client.blob_file import BlobFile
from emberkeep.client.http_calls import REQUEST_TIMEOUT, HttpCalls, Request, decode
from emberkeep.protocol import rest_blobs

# Only the time of each read from the socket is limited, so a large file on a slow line does not fail.
_TRANSFER_LIMITS = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT, sock_read=60.0)
# The reply arrives when all the work is done, however long that takes.
_PATIENT_LIMITS = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT)


class BlobCalls:
    """A RestClient's calls for BLOBs. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def open_group(self, job_id: JobId, contents: Sequence[BlobContent]) -> list[str]:
        """Announce the uploads for a job that does not exist yet. Return the SHA-256s of the missing contents."""
        body = msgspec.json.encode(rest_blobs.BlobGroup(blobs=list(contents)))
        headers = {"Content-Type": "application/json"}
        answer = await self._http.call(Request("POST", f"/jobs/{job_id}/blobs", headers=headers, body=lambda: body))
        return decode(answer, rest_blobs.BlobGroupOpened).missing

    async def upload(
        self, job_id: JobId, key: BlobKey, body: Callable[[], bytes | AsyncIterator[bytes]], size: int
    ) -> None:
        """Upload the content of a BLOB.

        ``body`` is called again for each try. The JobManager refuses content with a different hash.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        path = f"/jobs/{job_id}/blobs/{key}"
        await self._http.call(Request("PUT", path, headers=headers, body=body, limits=_TRANSFER_LIMITS))

    async def download(self, job_id: JobId, key: BlobKey, destination: Path) -> int:
        """Download the content of a BLOB to ``destination``, which appears only once complete and verified.

        Returns its size in bytes. Raises Fatal if the content is damaged or cannot be written.
        """
        file = BlobFile(destination, key)
        try:
            path = f"/jobs/{job_id}/blobs/{key}"
            await self._http.call(Request("GET", path, limits=_TRANSFER_LIMITS, sink=file.receive))
            return await file.finish()
        finally:
            file.clean_up()

    async def all(self, job_id: JobId | None = None) -> rest_blobs.BlobList:
        """Return all BLOBs, or one job's."""
        path = "/blobs" if job_id is None else f"/jobs/{job_id}/blobs"
        return decode(await self._http.call(Request("GET", path)), rest_blobs.BlobList)

    async def verify(self, job_id: JobId | None = None) -> rest_blobs.BlobCheck:
        """Have the JobManager read all BLOBs, or one job's, in both stores. Returns when it has read them."""
        path = "/blobs/verify" if job_id is None else f"/jobs/{job_id}/blobs/verify"
        return decode(await self._http.call(Request("POST", path, limits=_PATIENT_LIMITS)), rest_blobs.BlobCheck)

    async def collect(self) -> rest_blobs.BlobCollection:
        """Run the staged clean-up once."""
        return decode(
            await self._http.call(Request("POST", "/blobs/gc", limits=_PATIENT_LIMITS)), rest_blobs.BlobCollection
        )

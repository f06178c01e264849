"""What a JobManager's other parts, and its edges, may ask of the BLOB server."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.model import BlobContent, BlobKey


class BlobView(msgspec.Struct, frozen=True, kw_only=True):
    """One BLOB as the server knows it. ``references`` names its holders. ``state`` is one of:

    - "referenced": it has a holder
    - "uploading": being uploaded, or its group is not complete
    - "unreferenced": kept until its job is recovered or submitted, or no job has needed it for a long time
    - "staged": the clean-up after the next one deletes it
    - "deleting": being deleted, or the next clean-up deletes it
    """

    owner: JobId
    key: BlobKey
    size: int  # bytes
    in_local_store: bool
    in_ha_store: bool
    references: tuple[str, ...]
    state: str


class BlobFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that verification found in one store's copy of a BLOB.

    ``healed``: replaced from the other store's copy.
    """

    owner: JobId
    key: BlobKey
    store: str  # "local", or the HA store's location
    problem: str
    healed: bool


class BlobVerification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification.

    ``checked``: number of copies read, in both stores. ``bytes``: total size of the sound ones.
    """

    checked: int
    bytes: int
    findings: tuple[BlobFinding, ...]


class BlobStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the process started, and totals of what is stored now.

    ``cleanup_interval``: seconds between two clean-ups. ``cleanup_in``: seconds until the next one; None if the server
    does not run.
    """

    blobs: int
    bytes: int
    uploads: int
    uploaded_bytes: int
    downloads: int
    downloaded_bytes: int
    local_hits: int
    ha_hits: int
    misses: int
    verify_failures: int
    cleanup_runs: int
    deleted: int
    redirected: int  # downloads redirected to a peer's cache
    cleanup_interval: float = 0.0
    cleanup_in: float | None = None


class BlobLifecycle(Protocol):
    """What the Dispatcher reports about jobs, in order of occurrence. These calls never block and never fail."""

    def job_submitted(self, job_id: JobId, keys: Sequence[BlobKey], attempt: int = NO_ATTEMPT) -> None:
        """Reference the artefacts of a durable job, new or recovered, until its end (BLOB-18, BLOB-17).

        ``attempt``: the newest one; 0 before the first. Requests of earlier attempts are refused.
        """

    def job_restarting(self, job_id: JobId, attempt: int) -> None:
        """Drop all references to the job's transient BLOBs (BLOB-14): this attempt has failed.

        Requests of this attempt and earlier ones are refused from now on.
        """

    def job_ended(self, job_id: JobId) -> None:
        """Delete everything of the job at once: its status is globally terminal (BLOB-15)."""


class DownloadRedirects(Protocol):
    """Which caches have a BLOB, so that a download can be redirected to one of them (BLOB-22)."""

    def peer_for(self, owner: JobId, key: BlobKey, requester: str) -> str | None:
        """Return the address of a cache to redirect a download to; None: serve it here, then call ``download_ended``.

        ``requester``: address of the cache that asks. Raises Absent, and RetryLater if the cache must try again soon.
        """

    def peer_failed(self, owner: JobId, key: BlobKey, requester: str) -> None:
        """Note that the requester did not get the BLOB from its peer. Serve it here, then call ``download_ended``."""

    def peer_ready(self, owner: JobId, key: BlobKey, peer: str) -> None:
        """Record that the cache at this address has the BLOB, from whatever source, and can serve it."""

    def forget_peer(self, peer: str) -> None:
        """Note that there is no longer a cache at this address."""

    def download_ended(self, owner: JobId, key: BlobKey, requester: str, *, sent: int, complete: bool) -> None:
        """Note that a download served here has ended after ``sent`` bytes. ``requester``: "" if it is not a cache."""


class BlobServerGateway(BlobLifecycle, Protocol):
    """The BLOB server, as REST, RPC off-loading and logs use it."""

    async def open_group(self, owner: JobId, contents: Sequence[BlobContent]) -> tuple[str, ...]:
        """Announce permanent BLOBs that belong together (BLOB-6). Return the SHA-256s that must be uploaded.

        Raises InvalidInput (too large, too many, one hash with two sizes), Conflict (the job has ended), RetryLater.
        """

    async def upload(
        self,
        owner: JobId,
        key: BlobKey,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        holders: Sequence[str] = (),
        attempt: int = NO_ATTEMPT,
    ) -> int:
        """Store a BLOB with these references (BLOB-5) and return its size in bytes. Idempotent.

        ``attempt``: the job's attempt on whose behalf the upload is made. Raises InvalidInput (hash, size), Fatal
        (disk), RetryLater (the HA store is away), Conflict (the job or the attempt has ended).
        """

    async def store_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        """Store a transient BLOB from this process and return its key."""

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        """Return the verified file in the local store, copied there from the HA store if necessary.

        Raises Absent, Damaged, Unavailable (the local copy cannot be read now), and the HA store's RetryLater and
        Fatal.
        """

    async def claim(self, owner: JobId, contents: Sequence[BlobContent]) -> None:
        """Reference a submission's artefacts until ``job_submitted`` or ``withdraw``.

        Raises NotUploaded for the first one that is missing, InvalidInput for a wrong size (``field``:
        "artefacts[i].sha256" or ".size"), RetryLater while the server is ending or the HA store has not answered.
        """

    def withdraw(self, owner: JobId) -> None:
        """End the claim of a submission that was refused. Staged clean-up removes its unreferenced BLOBs."""

    def hold(self, owner: JobId, key: BlobKey, holders: Sequence[str]) -> None:
        """Add references. Raises Absent."""

    def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        """End one reference. A missing reference is ignored, because acknowledgements may arrive twice.

        Raises Conflict if ``attempt``, on whose behalf the call is made, has ended.
        """

    @property
    def redirects(self) -> DownloadRedirects:
        """The caches that downloads may be redirected to."""

    async def blobs(self, owner: JobId | None = None) -> list[BlobView]:
        """Return all BLOBs, or one owner's, by owner and key."""

    async def verify(self, owner: JobId | None = None) -> BlobVerification:
        """Read every copy in both stores, of one owner or all.

        Replace bad copies from the other store where possible.
        """

    async def collect(self) -> int:
        """Run the staged clean-up once, now. Return the number of BLOBs that it deleted."""

    def statistics(self) -> BlobStatistics:
        """Return counters and totals."""

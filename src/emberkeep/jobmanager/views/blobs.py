"""What the rest of a JobManager, and its edges, may ask of the BLOB server."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.model import BlobContent, BlobKey


class BlobView(msgspec.Struct, frozen=True, kw_only=True):
    """One BLOB as the server knows it. ``references``: who holds it, in words. ``state``: "referenced", "uploading"
    (or its group is not complete), "unreferenced" (waits for its job to be recovered), "staged" (deleted by the
    clean-up after the next one), "deleting" (by the next one, or just now)."""

    owner: JobId
    key: BlobKey
    size: int  # bytes
    in_local_store: bool
    in_ha_store: bool
    references: tuple[str, ...]
    state: str


class BlobFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification found wrong with one BLOB in one store. ``healed``: the other store had it right."""

    owner: JobId
    key: BlobKey
    store: str  # "local" or the HA store's location
    problem: str
    healed: bool


class BlobVerification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading everything. ``checked`` and ``bytes`` count each store's copy."""

    checked: int
    bytes: int
    findings: tuple[BlobFinding, ...]


class BlobStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the process started, and what is stored now."""

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
    redirected: int  # downloads sent on to a peer's cache


class BlobLifecycle(Protocol):
    """What the dispatcher tells of jobs, in the order in which it happens. These never block and never fail."""

    def job_submitted(self, job_id: JobId, keys: Sequence[BlobKey], attempt: int = NO_ATTEMPT) -> None:
        """The job is durable, new or recovered: its artefacts are referenced until its end (BLOB-18, BLOB-17).
        ``attempt``: the newest one, 0 for none; what acts for those before it is refused."""

    def job_restarting(self, job_id: JobId, attempt: int) -> None:
        """This attempt failed: counts of transient BLOBs become 0 (BLOB-14), what acts for it is refused."""

    def job_ended(self, job_id: JobId) -> None:
        """Globally terminal: everything of the job is deleted at once (BLOB-15)."""


class BlobServerGateway(BlobLifecycle, Protocol):
    """The BLOB server, for REST, RPC off-loading and logs."""

    async def open_group(self, owner: JobId, contents: Sequence[BlobContent]) -> tuple[str, ...]:
        """Announce permanent BLOBs that belong together (BLOB-6); returns the SHA-256s that have to be uploaded, the
        others are there. Raises InvalidInput (too large, too many, one hash with two sizes), Conflict (job ended)."""

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
        """Store a BLOB (BLOB-5), with these references; returns bytes. Repeating it does no harm. ``attempt``: of the
        job, that the uploader acts for.

        Raises InvalidInput (hash, size), Fatal (disk), RetryLater (HA store away), Conflict (the job or the attempt has
        ended).
        """

    async def store_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        """Store a transient BLOB made in this process."""

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        """The verified file: from the local store, else brought there from the HA store. Raises Absent, Damaged."""

    async def claim(self, owner: JobId, contents: Sequence[BlobContent]) -> None:
        """References a submission's artefacts until ``job_submitted`` or ``withdraw``. Raises NotUploaded naming the
        first that is not there, InvalidInput for another size (``field`` "artefacts[i].sha256" or ".size")."""

    def withdraw(self, owner: JobId) -> None:
        """The submission was refused: its claim ends, staged clean-up removes what nobody uses."""

    def hold(self, owner: JobId, key: BlobKey, holders: Sequence[str]) -> None:
        """Add references. Raises Absent."""

    def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        """End one reference; one that is not there (any more) is fine: acknowledgements may arrive twice. Raises
        Conflict: the attempt that asks for it is over."""

    def peer_for(self, owner: JobId, key: BlobKey, requester: str) -> str | None:
        """Address of a cache that a download is to be sent on to; None: serve it here, then ``download_ended``.

        ``requester``: address of the requesting cache. Raises Absent; RetryLater: ask again shortly (BLOB-22).
        """

    def peer_failed(self, owner: JobId, key: BlobKey, requester: str) -> None:
        """The peer that the requester was sent to did not give it the BLOB: it is served here, then
        ``download_ended``."""

    def peer_ready(self, owner: JobId, key: BlobKey, peer: str) -> None:
        """The cache at this address has fetched the BLOB, wherever from, and can serve it."""

    def forget_peer(self, peer: str) -> None:
        """There is no cache at this address any more."""

    def download_ended(self, owner: JobId, key: BlobKey, requester: str, *, sent: int, complete: bool) -> None:
        """A download that was served here is over, after ``sent`` bytes. ``requester``: "" when it is no cache."""

    async def blobs(self, owner: JobId | None = None) -> list[BlobView]:
        """All BLOBs, or one owner's, by owner and key."""

    async def verify(self, owner: JobId | None = None) -> BlobVerification:
        """Read everything in both stores and heal what can be."""

    async def collect(self) -> int:
        """Run the staged clean-up once, now; returns how many BLOBs it deleted."""

    def statistics(self) -> BlobStatistics:
        """Counters and totals."""

"""A BLOB server without a second store, a clock or concurrency: a directory and a dictionary."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import AttemptFences
from emberkeep.blobs.errors import DamagedBlob, NotUploaded
from emberkeep.blobs.model import BlobContent, BlobKey, transient
from emberkeep.jobmanager.views.blobs import (
    BlobFinding,
    BlobServerGateway,
    BlobStatistics,
    BlobVerification,
    BlobView,
)


@dataclass
class Kept:
    """One BLOB. ``staged``: the next clean-up deletes it unless somebody references it."""

    size: int
    holders: set[str] = field(default_factory=set)
    staged: bool = False


class MemoryBlobs(BlobServerGateway):
    """State is public: tests set it. ``refusal``, when set, is raised by uploads once all bytes have arrived."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.kept: dict[JobId, dict[BlobKey, Kept]] = {}
        self.groups: dict[JobId, set[BlobKey]] = {}  # what is still missing
        self.ended: set[JobId] = set()
        self._fences = AttemptFences()
        self.peers: dict[BlobKey, str] = {}
        self.refusal: EmberkeepError | None = None
        self.uploads = 0
        self.downloads = 0
        self.runs = 0
        self.ended_downloads: list[tuple[str, int, bool]] = []

    def file(self, owner: JobId, key: BlobKey) -> Path:
        return self._root / owner / str(key)

    # --- uploads ------------------------------------------------------------------------------------------------------

    async def open_group(self, owner: JobId, contents: Sequence[BlobContent]) -> tuple[str, ...]:
        self._refuse_ended(owner)
        keys = [BlobKey(kind=content.kind, sha256=content.sha256) for content in contents]
        missing = [key for key in keys if key not in self.kept.get(owner, {})]
        self.groups[owner] = set(missing)
        return tuple(dict.fromkeys(key.sha256 for key in missing))

    async def upload(
        self,
        owner: JobId,
        key: BlobKey,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        holders: Sequence[str] = (),
        attempt: int = 0,
    ) -> int:
        self._refuse_ended(owner)
        self._fences.refuse_over(owner, attempt)
        data = b"".join([chunk async for chunk in chunks])
        if self.refusal is not None:
            raise self.refusal
        actual = hashlib.sha256(data).hexdigest()
        if actual != key.sha256:
            raise InvalidInput(f"the content's SHA-256 is {actual}, not {key.sha256}", field="key")
        if size is not None and len(data) != size:
            raise InvalidInput(f"{len(data)} bytes arrived, not {size}", field="body")
        self._keep(owner, key, data, holders)
        return len(data)

    async def store_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        key = transient(hashlib.sha256(data).hexdigest())
        self._keep(owner, key, data, holders)
        return key

    def _keep(self, owner: JobId, key: BlobKey, data: bytes, holders: Sequence[str]) -> None:
        self.file(owner, key).parent.mkdir(exist_ok=True)
        self.file(owner, key).write_bytes(data)
        kept = self.kept.setdefault(owner, {}).setdefault(key, Kept(len(data)))
        kept.holders |= set(holders)
        self.groups.get(owner, set()).discard(key)
        self.uploads += 1

    def _refuse_ended(self, owner: JobId) -> None:
        if owner in self.ended:
            raise Conflict(f"job {owner} has ended")

    # --- downloads ----------------------------------------------------------------------------------------------------

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        self.get(owner, key)
        file = self.file(owner, key)
        actual = hashlib.sha256(file.read_bytes()).hexdigest()
        if actual != key.sha256:
            self._drop(owner, key)
            raise DamagedBlob(owner, key, actual, "the local store")
        self.downloads += 1
        return file

    @property
    def redirects(self) -> MemoryRedirects:
        return MemoryRedirects(self)

    # --- references ---------------------------------------------------------------------------------------------------

    async def claim(self, owner: JobId, contents: Sequence[BlobContent]) -> None:
        for index, content in enumerate(contents):
            kept = self.kept.get(owner, {}).get(BlobKey(kind=content.kind, sha256=content.sha256))
            if kept is None:
                raise NotUploaded(f"{content.sha256} is not here", field=f"artefacts[{index}].sha256")
            if kept.size != content.size:
                raise InvalidInput(f"it has {kept.size} bytes", field=f"artefacts[{index}].size")

    def withdraw(self, owner: JobId) -> None:
        """Claims are not kept here."""

    def hold(self, owner: JobId, key: BlobKey, holders: Sequence[str]) -> None:
        self.get(owner, key).holders |= set(holders)

    def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int = 0) -> None:
        self._fences.refuse_over(owner, attempt)
        kept = self.kept.get(owner, {}).get(key)
        if kept is not None:
            kept.holders.discard(holder)

    def job_submitted(self, job_id: JobId, keys: Sequence[BlobKey], attempt: int = 0) -> None:
        self._fences.end(job_id, attempt - 1)
        for key in keys:
            self.hold(job_id, key, ["job"])

    def job_restarting(self, job_id: JobId, attempt: int) -> None:
        self._fences.end(job_id, attempt)
        for key, kept in self.kept.get(job_id, {}).items():
            if not key.is_permanent:
                kept.holders.clear()

    def job_ended(self, job_id: JobId) -> None:
        self.ended.add(job_id)
        for key in list(self.kept.get(job_id, {})):
            self._drop(job_id, key)

    def get(self, owner: JobId, key: BlobKey) -> Kept:
        try:
            return self.kept[owner][key]
        except KeyError:
            raise Absent(f"there is no BLOB {key} of job {owner}") from None

    def _drop(self, owner: JobId, key: BlobKey) -> None:
        del self.kept[owner][key]
        self.file(owner, key).unlink()

    # --- for operators ------------------------------------------------------------------------------------------------

    async def blobs(self, owner: JobId | None = None) -> list[BlobView]:
        return [
            BlobView(
                owner=job,
                key=key,
                size=kept.size,
                in_local_store=True,
                in_ha_store=key.is_permanent,
                references=tuple(sorted(kept.holders)),
                state="referenced" if kept.holders else "staged" if kept.staged else "unreferenced",
            )
            for job, blobs in sorted(self.kept.items())
            for key, kept in sorted(blobs.items())
            if owner in (None, job)
        ]

    async def verify(self, owner: JobId | None = None) -> BlobVerification:
        views = await self.blobs(owner)
        findings = []
        for view in views:
            actual = hashlib.sha256(self.file(view.owner, view.key).read_bytes()).hexdigest()
            if actual != view.key.sha256:
                problem = f"its SHA-256 is {actual}, not {view.key.sha256}"
                findings.append(
                    BlobFinding(owner=view.owner, key=view.key, store="local", problem=problem, healed=False)
                )
        return BlobVerification(checked=len(views), bytes=sum(v.size for v in views), findings=tuple(findings))

    async def collect(self) -> int:
        self.runs += 1
        unused = [
            (owner, key, kept)
            for owner, blobs in self.kept.items()
            for key, kept in blobs.items()
            if not kept.holders and key not in self.groups.get(owner, ())
        ]
        due = [(owner, key) for owner, key, kept in unused if kept.staged]
        for owner, key in due:
            self._drop(owner, key)
        for _, _, kept in unused:
            kept.staged = True
        return len(due)

    def statistics(self) -> BlobStatistics:
        sizes = [kept.size for blobs in self.kept.values() for kept in blobs.values()]
        return BlobStatistics(
            blobs=len(sizes),
            bytes=sum(sizes),
            uploads=self.uploads,
            uploaded_bytes=sum(sizes),
            downloads=self.downloads,
            downloaded_bytes=0,
            local_hits=self.downloads,
            ha_hits=3,
            misses=4,
            verify_failures=5,
            cleanup_runs=self.runs,
            deleted=6,
            redirected=7,
        )


class MemoryRedirects:
    """The redirects of a MemoryBlobs: at most one peer for each BLOB."""

    def __init__(self, blobs: MemoryBlobs) -> None:
        self._blobs = blobs

    def peer_for(self, owner: JobId, key: BlobKey, requester: str) -> str | None:
        self._blobs.get(owner, key)
        return self._blobs.peers.get(key)

    def peer_failed(self, owner: JobId, key: BlobKey, requester: str) -> None:
        self._blobs.peers.pop(key, None)

    def peer_ready(self, owner: JobId, key: BlobKey, peer: str) -> None:
        self._blobs.peers[key] = peer

    def forget_peer(self, peer: str) -> None:
        self._blobs.peers = {key: address for key, address in self._blobs.peers.items() if address != peer}

    def download_ended(self, owner: JobId, key: BlobKey, requester: str, *, sent: int, complete: bool) -> None:
        self._blobs.ended_downloads.append((requester, sent, complete))

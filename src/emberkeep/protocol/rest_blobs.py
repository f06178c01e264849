"""REST bodies about BLOBs."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent
from emberkeep.protocol.rest import Kebab

ATTEMPT_HEADER = "Emberkeep-Attempt"  # in requests to the BLOB server: the job's attempt on whose behalf they are made
BLOB_PEER_HEADER = "Emberkeep-Blob-Peer"  # in downloads: the address at which the requester's own cache serves BLOBs


class BlobGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents that belong together, to be uploaded before their job is submitted."""

    blobs: list[BlobContent]


class BlobGroupOpened(msgspec.Struct, frozen=True, kw_only=True):
    """``missing``: SHA-256 of each content to upload. The JobManager has the others already."""

    missing: list[str]


class BlobStored(Kebab, frozen=True, kw_only=True):
    """Reply to an upload: every store in which the BLOB belongs has it now."""

    jobid: JobId
    key: str
    size: int  # bytes


class BlobInfo(Kebab, frozen=True, kw_only=True):
    """One BLOB. ``state``: referenced, uploading, unreferenced, staged or deleting."""

    jobid: JobId
    key: str
    size: int  # bytes
    local: bool
    ha: bool
    references: list[str]
    state: str


class BlobList(Kebab, frozen=True, kw_only=True):
    blobs: list[BlobInfo]
    bytes: int


class BlobProblem(Kebab, frozen=True, kw_only=True):
    """A fault of one BLOB in one store."""

    jobid: JobId
    key: str
    store: str
    problem: str
    healed: bool


class BlobCheck(Kebab, frozen=True, kw_only=True):
    """Result of a check. ``checked`` and ``bytes`` count the copies in each store separately."""

    checked: int
    bytes: int
    problems: list[BlobProblem]


class BlobCollection(Kebab, frozen=True, kw_only=True):
    deleted: int

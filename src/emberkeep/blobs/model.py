"""Names and owners of BLOBs.

A BLOB is an immutable byte string that belongs to one job and exists at most as long as the job: an artefact, an
off-loaded message or a piece of a log. The SHA-256 of its content is its only name. Every store keeps it as
``<owner>/<key>``.
"""

from __future__ import annotations

import enum
import re

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId

# Owner of BLOBs that belong to no job: logs of JobManagers and TaskManagers themselves. No job gets this id.
NO_JOB = JobId("0" * 32)

_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"([pt])-([0-9a-f]{64})")


class BlobKind(enum.StrEnum):
    """How long a BLOB's bytes must last."""

    PERMANENT = "p"  # kept in the HA store for recovery: artefacts
    TRANSIENT = "t"  # can be made again: messages, logs


class BlobKey(Compatible, frozen=True, kw_only=True, order=True):
    """Kind and content hash (SHA-256, 64 lower-case hex digits). As text and as a file name: ``p-<sha256>``."""

    kind: BlobKind
    sha256: str

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("a BLOB's SHA-256 is 64 lower-case hex digits")

    def __str__(self) -> str:
        return f"{self.kind.value}-{self.sha256}"

    @property
    def is_permanent(self) -> bool:
        return self.kind is BlobKind.PERMANENT


def permanent(sha256: str) -> BlobKey:
    """Return the key of a permanent BLOB. Raises ValueError."""
    return BlobKey(kind=BlobKind.PERMANENT, sha256=sha256)


def transient(sha256: str) -> BlobKey:
    """Return the key of a transient BLOB. Raises ValueError."""
    return BlobKey(kind=BlobKind.TRANSIENT, sha256=sha256)


def parse_blob_key(text: str) -> BlobKey:
    """Parse a BLOB key from outside. Raises InvalidInput."""
    match = _KEY.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{text[:80]!r} is not a BLOB key", field="key", hint="'p-' or 't-' and 64 lower-case hex digits"
        )
    return BlobKey(kind=BlobKind(match.group(1)), sha256=match.group(2))


class BlobContent(Compatible, frozen=True, kw_only=True):
    """A BLOB to upload: SHA-256 and size in bytes. Only an off-loaded submission is transient."""

    sha256: str
    size: int
    kind: BlobKind = BlobKind.PERMANENT


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A BLOB as a store lists it: key, size in bytes, time of its last change (Unix milliseconds)."""

    key: BlobKey
    size: int
    modified_ms: int


def key_of(content: BlobContent) -> BlobKey:
    """Return the content's key. Raises ValueError for an invalid SHA-256."""
    return BlobKey(kind=content.kind, sha256=content.sha256)

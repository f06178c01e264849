"""Errors about stored bytes and about storing them."""

from __future__ import annotations

from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey


class DamagedBlob(Fatal):
    """A stored file does not have the content that its key names. The file was deleted where that was possible.

    ``actual``: SHA-256 of the bytes that were found; "" if they cannot be read.
    """

    def __init__(self, owner: JobId, key: BlobKey, actual: str, where: str) -> None:
        found = f"its SHA-256 is {actual}, not" if actual else "the copy cannot be read; the SHA-256 is"
        super().__init__(
            f"BLOB {key} of job {owner} is damaged in {where}: {found} {key.sha256}",
            hint="upload the file again unless another store has it",
        )
        self.owner = owner
        self.key = key
        self.actual = actual
        self.where = where


class NotUploaded(InvalidInput):
    """A submission names content that this JobManager does not have.

    The client need not have made a mistake: content that only the previous JobManager held is lost with it. The client
    uploads what is missing and submits again.
    """

    def __init__(self, message: str, *, field: str | None, hint: str | None = "upload it, and submit again") -> None:
        super().__init__(message, field=field, hint=hint)


class CannotStore(Fatal):
    """This machine's disk refused the bytes. Fetching them from another source would not help."""

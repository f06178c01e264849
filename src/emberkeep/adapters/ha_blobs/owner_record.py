"""The ownership record of a place for BLOBs, in a directory or an object store."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.object_store.location import directory_at, without_obstore
from emberkeep.base.errors import Unavailable
from emberkeep.base.files.durable import create_file
from emberkeep.base.files.errors import cannot_read, cannot_write
from emberkeep.base.files.ownership import OWNER_FILE, Owner, encode_owner, read_owner, rewrite
from emberkeep.base.files.private import make_private_durably
from emberkeep.base.ids import is_job_id


class BlobOwnerRecord(Protocol):
    """The ownership record of one place for BLOBs.

    All methods block. They raise Unavailable if the place does not answer, Fatal if it refuses.
    """

    def read(self) -> Owner | None:
        """Return the record; None if the place has no record. Raises Damaged, NewerFormat."""

    def create(self, owner: Owner) -> None:
        """Write the first record. Of several processes that do so at once, exactly one succeeds.

        Raises Conflict if a record already exists.
        """

    def replace(self, owner: Owner) -> None:
        """Write the record, whether one exists or not. Raises NewerFormat."""

    def has_jobs(self) -> bool:
        """True if the place holds data of at least one job."""


def open_blob_owner_record(location: str) -> BlobOwnerRecord:
    """Return the record of the HA store at ``location``, see ``open_blob_storage``. Raises Fatal."""
    directory = directory_at(location, "HA store")
    if directory is not None:
        return _DirectoryRecord(directory)
    try:
        from emberkeep.adapters.ha_blobs.object_owner_record import ObjectOwnerRecord
    except ModuleNotFoundError as error:
        raise without_obstore(error, f"an HA store at {location.partition('://')[0].lower()}://") from None
    return ObjectOwnerRecord(location)


class _DirectoryRecord:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._patience = FilePatience()

    def read(self) -> Owner | None:
        return self._patience.run(self._directory, self._read)

    def _read(self) -> Owner | None:
        try:
            return read_owner(self._directory)
        except Unavailable:
            if not self._is_missing():
                raise
            return None

    def _is_missing(self) -> bool:
        """True if the directory certainly does not exist."""
        try:
            self._directory.lstat()
        except OSError as error:
            return error.errno == errno.ENOENT
        return False

    def create(self, owner: Owner) -> None:
        def create() -> None:
            self._make()
            create_file(self._directory / OWNER_FILE, encode_owner(owner), mode=0o644)

        self._patience.run(self._directory, create)

    def replace(self, owner: Owner) -> None:
        def replace() -> None:
            self._make()
            rewrite(self._directory, owner)

        self._patience.run(self._directory, replace)

    def _make(self) -> None:
        try:
            make_private_durably(self._directory)
        except OSError as error:
            raise cannot_write(self._directory, error) from error

    def has_jobs(self) -> bool:
        return self._patience.run(self._directory, self._has_jobs)

    def _has_jobs(self) -> bool:
        try:
            return any(is_job_id(path.name) for path in self._directory.iterdir())
        except FileNotFoundError:
            return False
        except OSError as error:
            problem = cannot_read(self._directory, error)
            raise problem if isinstance(problem, Unavailable) else Unavailable(str(problem)) from error

"""A file that is being received and becomes a local copy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from emberkeep.adapters.state.copies_file import BLOCK_BYTES, BlockChecksums, encode_end
from emberkeep.base.errors import Fatal
from emberkeep.base.files.operations import FileOps
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, StatePath


class Staged:
    """A file on disk that is being received; implements ``local_state.ports.StagedCopy``."""

    def __init__(self, path: Path, files: FileOps, adopt: Callable[[Path, CopyRecord], None]) -> None:
        """Create the file ``path``. ``adopt`` turns the complete file and its record into a copy. Raises OSError."""
        self._path = path
        self._files = files
        self._adopt = adopt
        self._checksums = BlockChecksums()
        self._file = files.create(str(path))
        self._open = True

    @property
    def path(self) -> Path:
        return self._path

    def write(self, data: bytes) -> None:
        try:
            self._files.write(self._file, data)
        except OSError as error:
            raise self._refusal(error) from error
        self._checksums.add(data)

    def finish(self) -> int:
        return self._checksums.length

    def keep(
        self,
        path: StatePath,
        job_id: JobId,
        attempt: int,
        allocation_id: AllocationId,
        generation: str,
        *,
        modified_ms: int = 0,
    ) -> None:
        record = CopyRecord(
            path=path,
            job_id=job_id,
            allocation_id=allocation_id,
            attempt=attempt,
            length=self._checksums.length,
            generation=generation,
            modified_ms=modified_ms,
            block_size=BLOCK_BYTES,
            checksums=self._checksums.values(),
        )
        try:
            try:
                self._files.write(self._file, encode_end(record))
            finally:
                self._close()
            self._adopt(self._path, record)
        except OSError as error:
            self._delete()
            raise self._refusal(error) from error
        except BaseException:
            self._delete()
            raise

    def discard(self) -> None:
        if self._open:
            self._close()
            self._delete()

    @staticmethod
    def add_end(files: FileOps, path: str, record: CopyRecord) -> None:
        """Append a newer record to the file of a copy, where it replaces the earlier one. Raises OSError."""
        file = files.extend(path)
        try:
            files.write(file, encode_end(record))
        finally:
            os.close(file)

    def _close(self) -> None:
        self._open = False
        os.close(self._file)

    def _delete(self) -> None:
        with contextlib.suppress(OSError):  # the next start removes what stays
            self._files.unlink(str(self._path))

    def _refusal(self, error: OSError) -> Fatal:
        return Fatal(
            f"cannot write {self._path}: {error.strerror or error}",
            hint="check free space and permissions of that disk",
        )

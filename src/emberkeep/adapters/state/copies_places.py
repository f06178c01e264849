"""The paths of local copies below their root, and the operations on files and directories there.

```
<root>/copies/<job id>/<allocation id>/<name>   complete, see copies_file
<root>/staging/<name>                           being received, or being deleted
```
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.state.copies_file import read_end
from emberkeep.adapters.state.copies_index import Copy, Owner
from emberkeep.adapters.state.names import is_temporary
from emberkeep.base.errors import InvalidInput
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.operations import FileOps
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import AllocationId, JobId, parse_job_id
from emberkeep.local_state.errors import DamagedCopy

NO_FILE = (errno.ELOOP, errno.ENXIO, errno.ENOTDIR)  # a link, a socket or the like, so not a copy
_ALLOCATION = re.compile(r"[0-9a-f]{1,64}")

log = structlog.get_logger(__name__)


class CopyPlaces:
    """Files and directories of local copies.

    Methods raise OSError. Only one thread at a time may call those that create or remove an owner's directory.
    """

    def __init__(self, root: Path, files: FileOps) -> None:
        self._root = root
        self._copies = root / "copies"
        self._staging = root / "staging"
        self._files = files
        self._life = secrets.token_hex(6)
        self._numbers = itertools.count()
        self.removed = 0  # files removed because they were not sound copies
        self.left = 0  # files and directories that could not be read or removed
        self.why_left = ""  # path and error of the last of them

    def staging(self) -> Path:
        """Return a new path in staging, with a file name that no staged file or copy has ever had."""
        return self._staging / f"{self._life}-{next(self._numbers):x}"

    def path(self, copy: Copy) -> str:
        return f"{self._directory(copy.owner)}/{copy.file}"

    def _directory(self, owner: Owner) -> str:
        """Return the path of the owner's directory. Raises InvalidInput."""
        return f"{self._copies}/{_relative(owner)}"

    # --- at the start -------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Create the root and its two directories."""
        make_private(self._root)
        for directory in (self._staging, self._copies):
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(str(directory))

    def load(self) -> Iterator[tuple[int, Copy]]:
        """Yield each sound copy with its modification time (ns since 1970).

        Removes everything else below ``copies``, and everything in ``staging``.
        """
        for leftover in list(os.scandir(self._staging)):
            self._try_to_remove(leftover.path)
        for job in list(os.scandir(self._copies)):
            with self._skipping(job.path):
                yield from self._of_job(job)

    @contextlib.contextmanager
    def _skipping(self, path: str) -> Iterator[None]:
        """Count and skip a path that the disk refuses to read or delete; the next start tries again."""
        try:
            yield
        except OSError as error:
            self.left += 1
            self.why_left = f"{path}: {error.strerror or error}"

    def _try_to_remove(self, path: str) -> None:
        with self._skipping(path):
            self.remove(path)

    def _of_job(self, job: os.DirEntry[str]) -> Iterator[tuple[int, Copy]]:
        """Yield a job's copies with their modification times (ns); remove everything else in the job's directory."""
        try:
            if job.is_dir(follow_symlinks=False):
                job_id = parse_job_id(job.name)
                for allocation in list(os.scandir(job.path)):
                    with self._skipping(allocation.path):
                        yield from self._of_owner(job_id, allocation)
                with contextlib.suppress(OSError):  # raised if the directory is not empty
                    self._files.remove_directory(job.path)
                return
        except InvalidInput:
            pass
        self._try_to_remove(job.path)

    def _of_owner(self, job_id: JobId, allocation: os.DirEntry[str]) -> Iterator[tuple[int, Copy]]:
        if not _ALLOCATION.fullmatch(allocation.name) or not allocation.is_dir(follow_symlinks=False):
            self._try_to_remove(allocation.path)
            return
        owner = (job_id, AllocationId(allocation.name))
        for entry in list(os.scandir(allocation.path)):
            try:
                with self._skipping(entry.path):
                    yield _load(entry, owner)
            except DamagedCopy as error:
                log.debug("removing a local copy of state", reason=str(error))
                self.removed += 1
                self._try_to_remove(entry.path)
        with contextlib.suppress(OSError):
            self._files.remove_directory(allocation.path)

    def drop_replaced(self, copy: Copy) -> None:
        """Delete a copy that a newer one of the same name replaced: a crash prevented its deletion."""
        with self._skipping(self.path(copy)):
            self.delete(copy)

    def clear(self) -> None:
        """Remove all copies and staged files, and the root if that leaves it empty."""
        for directory in (self._staging, self._copies):
            self.remove(str(directory))
        try:
            self._files.remove_directory(str(self._root))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    # --- while running ------------------------------------------------------------------------------------------------

    def adopt(self, staged: Path, copy: Copy) -> None:
        """Move a staged file into its owner's directory, which makes it a copy."""
        target = self.path(copy)
        try:
            self._files.rename(str(staged), target)
        except FileNotFoundError:
            directory = self._directory(copy.owner)
            for each in (os.path.dirname(directory), directory):  # noqa: PTH120
                with contextlib.suppress(FileExistsError):
                    self._files.make_directory(each)
            self._files.rename(str(staged), target)

    def hand_over(self, copies: Iterable[Copy], source: Owner, target: Owner) -> None:
        """Move everything in one owner's directory to that of another owner of the same job, durably.

        One rename is enough unless the target already has files; in that case ``copies`` are moved one by one.
        """
        froms, to = self._directory(source), self._directory(target)
        try:
            self._files.rename(froms, to)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            for copy in copies:
                with contextlib.suppress(FileNotFoundError):
                    self._files.rename(self.path(copy), f"{to}/{copy.file}")
            sync_directory(Path(to), self._files)
            self._files.remove_directory(froms)
        sync_directory(Path(to).parent, self._files)

    def set_aside(self, owner: Owner) -> str:
        """Move an owner's directory into staging in one step. Return its new path, for the caller to remove."""
        going = str(self.staging())
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(self._directory(owner), going)
        self.remove_if_empty(owner)
        return going

    def delete(self, copy: Copy) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self.path(copy))

    def remove_if_empty(self, owner: Owner) -> None:
        """Remove an owner's directory, and its job's, if they are empty."""
        directory = self._directory(owner)
        for each in (directory, os.path.dirname(directory)):  # noqa: PTH120
            try:
                self._files.remove_directory(each)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it. A missing path is ignored."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                for entry in list(os.scandir(path)):
                    self.remove(entry.path)
                self._files.remove_directory(path)
            else:
                self._files.unlink(path)


@functools.lru_cache(maxsize=1024)
def _relative(owner: Owner) -> str:
    job_id, allocation_id = owner
    if not _ALLOCATION.fullmatch(allocation_id):
        raise InvalidInput(
            f"{allocation_id[:64]!r} is not an allocation id", field="allocation_id", hint="use hex digits"
        )
    return f"{parse_job_id(job_id)}/{allocation_id}"


def _load(entry: os.DirEntry[str], owner: Owner) -> tuple[int, Copy]:
    """Return a copy and its modification time (ns). Raises DamagedCopy; OSError if it cannot be read now."""
    try:
        file = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise DamagedCopy(f"{entry.path}: not a file") from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedCopy(f"{entry.path}: not a file")
        record = read_end(file, entry.path)
    finally:
        os.close(file)
    if record.job_id != owner[0]:
        raise DamagedCopy(f"{entry.path}: belongs to job {record.job_id}")
    if is_temporary(record.path.name.rpartition("/")[2]):
        raise DamagedCopy(f"{entry.path}: its name is no longer known")
    return found.st_mtime_ns, Copy(msgspec.structs.replace(record, allocation_id=owner[1]), entry.name)

"""An HA store in a directory that all machines share: local, NFS or another network file system.

```
<directory>/<owner>/<key>     complete and durable
<directory>/.incoming/<name>  in transfer, or being deleted
```

Several processes use it at the same time: JobManagers, of which one is the leader, and caches, which only read.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import structlog

from emberkeep.adapters.blobs.files_copy import cannot_store, copy_file, copy_hashed
from emberkeep.adapters.blobs.files_tree import BlobTree
from emberkeep.adapters.blocking.file_threads import EndSignal, StoreThreads, in_time_for
from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.files.errors import CANNOT_STORE
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, StoredBlob

_THREADS = 8
_LEAST_SECONDS = 60.0  # after which an operation on a file system that does not answer is abandoned
_SLOWEST_PACE = 1024**2  # bytes per second; a transfer also gets the time that its size takes at this pace
_LEFTOVER_SECONDS = 3600.0  # after this time without a change, no process can still be writing the file
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}

log = structlog.get_logger(__name__)


class DirectoryBlobs:
    """Implements ``blobs.ports.BlobStorage``. Does not create the directory before the first BLOB is stored."""

    def __init__(self, directory: Path, *, patience: float = _LEAST_SECONDS) -> None:
        """``patience``: seconds after which an operation is abandoned; transfers get more, depending on their size."""
        self._tree = BlobTree(directory)
        self._threads = StoreThreads(_THREADS, str(directory), patience=patience)
        self._swept = False

    @property
    def location(self) -> str:
        return str(self._tree.root)

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        await self._threads.run(lambda abort: self._put(owner, key, file, abort))

    def _put(self, owner: JobId, key: BlobKey, file: Path, abort: EndSignal) -> None:
        tree = self._tree
        with self._errors("store"):
            tree.make()
            size = file.stat().st_size
            abort.extra = size / _SLOWEST_PACE
            if self._put_shared(owner, key, size):
                return
            temporary = tree.temporary()
            try:
                actual = copy_hashed(file, temporary, abort.check)
                if actual != key.sha256:
                    raise DamagedBlob(owner, key, actual, str(file))
                abort.check()
                tree.publish(temporary, owner, key)
            finally:
                temporary.unlink(missing_ok=True)

    def _put_shared(self, owner: JobId, key: BlobKey, size: int) -> bool:
        """Use another owner's sound file with this content for the BLOB (BLOB-21). Return False without such a file."""
        for source in self._tree.places(key):
            if source == (owner, key):
                continue
            if self._is_sound(*source, size):
                with contextlib.suppress(Absent, FileNotFoundError):
                    return self._tree.share(source, owner, key)
        return False

    def _is_sound(self, owner: JobId, key: BlobKey, size: int) -> bool:
        """True if the file can be read and has the right content. A file that cannot be read is left as it is."""
        try:
            # Do not read a file of the wrong size. The copy that follows replaces a damaged file for all its owners.
            return self._tree.file(owner, key).stat().st_size == size and self._tree.verify(owner, key) is None
        except (Absent, OSError):
            return False

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        await self._threads.run(lambda abort: self._fetch(owner, key, destination, abort))

    def _fetch(self, owner: JobId, key: BlobKey, destination: Path, abort: EndSignal) -> None:
        abort.extra = self._size(owner, key) / _SLOWEST_PACE
        try:
            # Create the file first, to tell an error of the local disk from one of the store.
            os.close(os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise cannot_store(destination, error) from error
        with self._errors("read"):
            try:
                copy_file(self._tree.file(owner, key), destination, abort.check)
            except FileNotFoundError:
                raise self._absent(owner, key) from None
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
                    raise cannot_store(destination, error) from error
                raise

    async def size(self, owner: JobId, key: BlobKey) -> int:
        return await self._threads.run(lambda _: self._size(owner, key))

    def _size(self, owner: JobId, key: BlobKey) -> int:
        with self._errors("read"):
            try:
                status = self._tree.file(owner, key).lstat()
            except OSError as error:
                if error.errno in _NOT_THERE:
                    raise self._absent(owner, key) from None
                raise
            if not stat.S_ISREG(status.st_mode):
                raise self._absent(owner, key)
            return status.st_size

    def _absent(self, owner: JobId, key: BlobKey) -> Absent | Unavailable:
        if not self._tree.root.is_dir():  # the mount is missing: the BLOB was stored, or no process would ask for it
            return Unavailable(
                f"{self.location} does not exist now, so BLOB {key} of job {owner} cannot be read",
                hint="check that its file system is mounted",
            )
        return Absent(f"there is no BLOB {key} of job {owner} in {self.location}")

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        wanted, in_time = list(keys), in_time_for(within, self.location)

        def delete(_: EndSignal) -> None:
            with self._errors("delete"):
                self._sweep()
                for key in wanted:
                    in_time()
                    self._tree.delete(owner, [key])
                self._tree.delete(owner, [])  # deletes the owner's directory if it is empty

        await self._threads.run(delete)

    async def delete_owner(self, owner: JobId) -> None:
        def delete(_: EndSignal) -> None:
            with self._errors("delete"):
                self._sweep()
                if (self._tree.root / owner).exists():
                    self._tree.make()
                    self._tree.delete_owner(owner)

        await self._threads.run(delete)

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        return await self._threads.run(lambda _: self._listing())

    def _listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        with self._errors("read"):
            try:
                return self._tree.listing()
            except FileNotFoundError:
                return {}  # nothing was ever stored here

    def _sweep(self) -> None:
        """Remove files that crashed processes left in ``.incoming``; only the first call does so.

        Take the time from a new file there, as the store's clock sets the files' times.
        """
        if self._swept:
            return
        self._swept = True
        probe = self._tree.temporary()
        try:
            probe.touch(mode=0o600)
            self._tree.remove_leftovers(probe.stat().st_mtime - _LEFTOVER_SECONDS)
            probe.unlink()
        except OSError as error:
            log.debug("cannot remove leftovers", store=self.location, reason=error.strerror)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"cannot {verb} BLOBs in the HA store {self.location}: {error.strerror or error}"
            if error.errno in CANNOT_STORE:
                raise Fatal(message, hint="free some space there") from error
            hint = "check that its file system is mounted and that this user may use it"
            raise Unavailable(message, hint=hint) from error

"""A directory of BLOBs, ``<root>/<owner>/<key>``, and the blocking operations on it. Many threads use it.

Every BLOB's file is complete: it is renamed into place from ``<root>/.incoming``, on the same file system. If several
owners have the same content, it is one file with several hard links (BLOB-21). No name depends on another. So one
owner's files can be deleted at any moment, and a crash at any moment does no harm.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.blobs.files_copy import link_or_copy
from emberkeep.adapters.blobs.files_index import BlobIndex, Identity, Place, identity
from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.files.durable import make_directories, sync_directory
from emberkeep.base.files.ownership import is_owner_file
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.blobs.model import BlobKey, StoredBlob, parse_blob_key

INCOMING = ".incoming"
_READS = 3  # attempts to read a file that changes while it is read
_NO_BLOB = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
_FOREIGN_REPORTED = 1000  # names, so that a log is not flooded

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Damage:
    """A file that was read whole and has the wrong content.

    ``actual``: SHA-256 of that content. ``file``: identity of the file when it was read.
    """

    actual: str
    file: Identity


@dataclass(frozen=True)
class Placed:
    """A file that was placed as a BLOB. ``existed``: in place of an earlier file of that BLOB."""

    existed: bool
    file: Identity


class BlobTree:
    """A tree of BLOBs. Besides the errors that they name, methods raise OSError."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._incoming = root / INCOMING
        self._index = BlobIndex()
        self._lock = threading.Lock()  # guards the index, and adding and deleting files; held only briefly
        self._durable: set[JobId] = set()  # owners whose directory itself is durable in the root
        self._is_made = False  # the name of the root itself is durable
        self._reported: set[str] = set()
        self._life = secrets.token_hex(8)  # several processes may use one tree
        self._numbers = itertools.count()

    def file(self, owner: JobId, key: BlobKey) -> Path:
        """Return the path of a BLOB."""
        return self.root / owner / str(key)

    def temporary(self) -> Path:
        """Return a new path for a file in transfer."""
        return self._incoming / f"{self._life}-{next(self._numbers)}"

    def make(self) -> None:
        """Create the directories."""
        if not self._is_made or not self.root.is_dir():
            make_directories(self.root)
            self._is_made = True
        self._incoming.mkdir(mode=0o700, exist_ok=True)

    def remove_leftovers(self, older_than: float | None = None) -> None:
        """Remove files of interrupted transfers; with ``older_than`` (seconds since 1970), only earlier ones."""
        for entry in list(os.scandir(self._incoming)):
            with contextlib.suppress(FileNotFoundError):
                if older_than is None or entry.stat(follow_symlinks=False).st_mtime < older_than:
                    _remove(Path(entry.path))

    # --- storing ------------------------------------------------------------------------------------------------------

    def publish(self, temporary: Path, owner: JobId, key: BlobKey, *, verified: bool = True, mend: bool = True) -> bool:
        """Make a synced file a BLOB, durably, and return True if that replaced an existing one.

        ``verified``: the file is known to have the right content. ``mend``: the bytes are newly written, so give this
        file to the content's other owners as well. Raises OSError: in that case, a new BLOB is not stored, and an
        existing one stays, as the old file or as the new one.
        """
        placed = self.place(temporary, owner, key, verified=verified)
        try:
            self.sync(owner)
        except OSError:
            self.take_back(owner, key, placed)
            raise
        if mend:
            self.replace_others(owner, key)
        return placed.existed

    def place(self, temporary: Path, owner: JobId, key: BlobKey, *, verified: bool = True) -> Placed:
        """Do the first half of ``publish``: the BLOB exists, but is durable only after ``sync``."""
        place, source, target = (owner, key), str(temporary), str(self.file(owner, key))
        new = identity(os.lstat(source))
        with self._lock:
            # The index lacks what another process has stored, or this one before it has listed anything.
            existed = self._index.has(place) or _exists(self.file(owner, key))
            if owner not in self._durable:
                self._make_owner(owner)
            try:
                os.rename(source, target)  # noqa: PTH104 - thousands of these per second
            except FileNotFoundError:  # something has removed the directory
                self._make_owner(owner)
                temporary.rename(target)
            self._index.add(place, new if verified else None)
        return Placed(existed, new)

    def take_back(self, owner: JobId, key: BlobKey, placed: Placed) -> None:
        """Delete a BLOB that was placed just now, unless it existed before, or has got another file since then."""
        with self._lock:
            if not placed.existed and _identity_or_none(self.file(owner, key)) == placed.file:
                self.file(owner, key).unlink(missing_ok=True)
                self._forget((owner, key))

    def sync(self, owner: JobId) -> None:
        """Make the BLOBs that were placed for ``owner`` durable."""
        _sync_directory(self.root / owner)
        if owner not in self._durable:
            _sync_directory(self.root)
            self._durable.add(owner)

    def replace_others(self, owner: JobId, key: BlobKey) -> None:
        """Link this owner's file in place of the other owners' files with this content.

        Best effort: after an error, the other owners keep their own files.
        """
        place, file = (owner, key), self.file(owner, key)
        others = [other for other in self.places(key) if other != place]
        for other in others:
            temporary = self.temporary()
            try:
                with self._lock:
                    if self._index.has(other):
                        os.link(file, temporary, follow_symlinks=False)
                        temporary.rename(self.file(*other))
                temporary.unlink(missing_ok=True)
            except OSError as error:
                log.debug(
                    "cannot link a BLOB to the copy of another owner, keeping both",
                    owner=other[0],
                    reason=error.strerror,
                )
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                return

    def share(self, source: Place, owner: JobId, key: BlobKey) -> bool:
        """Give ``owner`` the verified content of ``source``. Return False if the source no longer exists."""
        temporary = self.temporary()
        try:
            try:
                same = link_or_copy(self.file(*source), temporary)
            except FileNotFoundError:
                with self._lock:
                    if not self.file(*source).exists():
                        self._index.remove(source)
                        return False
                raise
            self.publish(temporary, owner, key, verified=same, mend=False)
        finally:
            temporary.unlink(missing_ok=True)  # a rename between two names of one file leaves both
        return True

    def _make_owner(self, owner: JobId) -> None:
        directory = self.root / owner
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(directory.lstat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from None
        else:
            self._durable.discard(owner)

    # --- reading ------------------------------------------------------------------------------------------------------

    def places(self, key: BlobKey) -> list[Place]:
        """Return the places that are known to have this content, newest first."""
        with self._lock:
            return self._index.places(key.sha256)

    def is_verified(self, owner: JobId, key: BlobKey) -> bool:
        """True if the file exists and has not changed since it was verified. Makes one system call."""
        try:
            status = os.lstat(self.file(owner, key))
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and self._index.is_verified(key.sha256, identity(status))

    def verify(self, owner: JobId, key: BlobKey) -> Damage | None:
        """Read the file, unless it is already verified, and return its damage; None if it is sound.

        Raises Absent, and OSError if the file cannot be read now, which says nothing about its bytes.
        """
        place, path = (owner, key), self.file(owner, key)
        for _ in range(_READS):
            with _opened(path, place) as descriptor:
                before = identity(os.fstat(descriptor))
                if self._index.is_verified(key.sha256, before):
                    return None
                with open(descriptor, "rb", buffering=0, closefd=False) as file:
                    found = Damage(hashlib.file_digest(file, "sha256").hexdigest(), before)
            with self._lock:
                if _identity_or_none(path) != before:
                    continue  # the file was replaced or changed in the meantime: the hash says nothing
                if found.actual != key.sha256:
                    return found
                self._index.add(place, before)
                return None
        raise OSError(errno.EAGAIN, f"replaced during each of {_READS} reads")

    def drop(self, owner: JobId, key: BlobKey, damage: Damage) -> list[Place]:
        """Delete a damaged file under all its names; return the places whose BLOBs were deleted."""
        dropped = []
        with self._lock:
            for place in {(owner, key): None} | dict.fromkeys(self._index.places(key.sha256)):
                path = self.file(*place)
                if _identity_or_none(path) == damage.file:
                    path.unlink()
                    self._forget(place)
                    dropped.append(place)
        return dropped

    def listing(self) -> dict[JobId, tuple[StoredBlob, ...]]:
        """Return all BLOBs by owner, and make them known to ``places``. Log each foreign file once."""
        found: dict[JobId, tuple[StoredBlob, ...]] = {}
        for entry in sorted(os.scandir(self.root), key=lambda entry: entry.name):
            if entry.name == INCOMING or is_owner_file(entry.name):
                continue
            owner = _owner_of(entry)
            if owner is None:
                self._report(entry.path)
                continue
            with contextlib.suppress(FileNotFoundError):
                found[owner] = tuple(self._blobs(entry.path))
        with self._lock:
            for owner, blobs in found.items():
                for blob in blobs:
                    if not self._index.has((owner, blob.key)) and self.file(owner, blob.key).exists():
                        self._index.add((owner, blob.key))
        return found

    def _blobs(self, directory: str) -> Iterator[StoredBlob]:
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            try:
                key = parse_blob_key(entry.name) if entry.is_file(follow_symlinks=False) else None
            except InvalidInput:
                key = None
            if key is None:
                self._report(entry.path)
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield StoredBlob(key=key, size=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)

    def _report(self, path: str) -> None:
        if path not in self._reported and len(self._reported) < _FOREIGN_REPORTED:
            self._reported.add(path)
            log.warning("ignoring a foreign file in a BLOB store", path=path)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        """Delete BLOBs of ``owner``; missing ones are ignored. Delete the owner's directory if that leaves it empty."""
        with self._lock:
            for key in keys:
                self.file(owner, key).unlink(missing_ok=True)
                self._index.remove((owner, key))
            self._remove_if_empty(owner)

    def delete_owner(self, owner: JobId) -> None:
        """Delete the owner's directory: first take all its BLOBs away at once with a rename, then remove them."""
        going = self.temporary()
        with self._lock:
            with contextlib.suppress(FileNotFoundError):
                (self.root / owner).rename(going)
            self._index.remove_owner(owner)
            self._durable.discard(owner)
        _remove(going)

    def _forget(self, place: Place) -> None:
        self._index.remove(place)
        self._remove_if_empty(place[0])

    def _remove_if_empty(self, owner: JobId) -> None:
        try:
            (self.root / owner).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise
        else:
            self._durable.discard(owner)


@contextlib.contextmanager
def _opened(path: Path, place: Place) -> Iterator[int]:
    """Open a BLOB's file. Raises Absent if it does not exist, or if the path is something else, such as a link."""
    owner, key = place
    absent = Absent(f"there is no BLOB {key} of job {owner} in {path.parent.parent}")
    try:
        if not stat.S_ISDIR(path.parent.lstat().st_mode):
            raise absent
        # O_NONBLOCK: if the path is a named pipe, do not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_BLOB:
            raise absent from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise absent
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    """Sync a directory, unless it was deleted in the meantime."""
    with contextlib.suppress(FileNotFoundError):
        sync_directory(path)


def _exists(path: Path) -> bool:
    """True if something has this name. Raises OSError if nobody can tell: that is not "no"."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _identity_or_none(path: Path) -> Identity | None:
    try:
        return identity(os.lstat(path))
    except OSError:
        return None


def _owner_of(entry: os.DirEntry[str]) -> JobId | None:
    try:
        return parse_job_id(entry.name) if entry.is_dir(follow_symlinks=False) else None
    except InvalidInput:
        return None


def _remove(path: Path) -> None:
    """Remove a file, or a directory with everything in it; do nothing if there is neither."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)

"""Writes a backup: a directory of members, or one archive file (``.tar``) of them.

Everything is first written into a directory of its own next to the target. Only a complete and durable backup gets the
target's name. An existing file or directory is never replaced, except an empty directory that appears meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from emberkeep.adapters.backups.manifest import encode_manifest
from emberkeep.adapters.backups.names import MANIFEST, SEAL, checked_name, is_archive
from emberkeep.adapters.backups.seal import seal_of
from emberkeep.backups.model import BackupManifest, Member
from emberkeep.base.errors import Conflict
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.errors import cannot_write
from emberkeep.base.files.operations import SYSTEM_FILES
from emberkeep.base.files.private import make_private

_PIECE = 1024**2  # bytes read at once
_NAME_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})  # by a directory, or by anything else
_HINT = "choose another name: a backup is never overwritten"


class Staging:
    """The members of a backup that is being made, below ``root``. All methods block, and raise OSError."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """Return the path of a member, and make its directory."""
        path = self.root / checked_name(name)
        make_private(path.parent)
        return path

    def has(self, name: str) -> bool:
        return (self.root / checked_name(name)).exists()

    def write(self, name: str, data: bytes) -> None:
        """Write a member."""
        path = self.path(name)
        path.unlink(missing_ok=True)
        descriptor = SYSTEM_FILES.create(str(path))
        try:
            SYSTEM_FILES.write(descriptor, data)
        finally:
            os.close(descriptor)

    def described(self, names: list[str]) -> tuple[Member, ...]:
        """Return size and digest of members, and delete all other files. Make everything durable."""
        wanted = set(names)
        for directory, _, files in os.walk(self.root):
            for file in files:
                path = Path(directory) / file
                if str(path.relative_to(self.root)) not in wanted:
                    path.unlink()
        return tuple(_synced(self.root / name, name) for name in sorted(wanted))


@contextlib.contextmanager
def staging_for(target: Path) -> Iterator[Staging]:
    """Provide an empty directory next to the target, and remove it at the end.

    Raises Conflict if the target exists, Fatal or Unavailable if nothing can be written there.
    """
    if os.path.lexists(target):
        raise Conflict(f"{target} already exists", hint=_HINT)
    root = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        root.mkdir(mode=0o700)
    except OSError as error:
        raise cannot_write(root, error) from error
    try:
        yield Staging(root)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        shutil.rmtree(root, ignore_errors=True)


def complete(staging: Staging, target: Path, manifest: BackupManifest, token: str) -> None:
    """Write manifest and seal, and give the backup its name. Raises Conflict if the target exists, OSError."""
    data = encode_manifest(manifest)
    staging.write(MANIFEST, data)
    staging.write(SEAL, seal_of(data, token))
    names = [member.name for member in manifest.members]
    for name in (MANIFEST, SEAL):
        _synced(staging.root / name, name)
    if is_archive(target):
        _pack(staging, target, [*names, SEAL, MANIFEST])
        return
    for directory, _, _ in os.walk(staging.root, topdown=False):
        sync_directory(Path(directory))
    try:
        staging.root.rename(target)  # replaces an empty directory, and nothing else
    except OSError as error:
        if error.errno in _NAME_TAKEN:
            raise Conflict(f"{target} already exists", hint=_HINT) from None
        raise
    sync_directory(target.parent)


def _pack(staging: Staging, target: Path, names: list[str]) -> None:
    """Write the archive, the manifest as the last member. Its bytes depend on the members only."""
    temporary = staging.root.with_name(f"{staging.root.name}.tar")
    descriptor = SYSTEM_FILES.create(str(temporary))
    try:
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name in names:
                    path = staging.root / name
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = path.stat().st_size, 0o600
                    with path.open("rb") as data:
                        archive.addfile(entry, data)
            file.flush()
            os.fsync(file.fileno())
        _publish(temporary, target)
    finally:
        with contextlib.suppress(OSError):  # a temporary file that stays does not make the backup fail
            temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


def _publish(temporary: Path, target: Path) -> None:
    try:
        SYSTEM_FILES.link(str(temporary), str(target))
    except FileExistsError:
        raise Conflict(f"{target} already exists", hint=_HINT) from None
    except OSError:  # a file system without hard links
        try:
            SYSTEM_FILES.rename_new(str(temporary), str(target))
        except FileExistsError:
            raise Conflict(f"{target} already exists", hint=_HINT) from None


def _synced(path: Path, name: str) -> Member:
    """Make a file durable, and return its description."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
        os.fsync(file.fileno())
    return Member(name=name, size=size, sha256=digest.hexdigest())

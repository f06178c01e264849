"""Reads a backup, whether it is a directory or an archive. Nothing in it is trusted before its digest was checked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from emberkeep.adapters.backups.manifest import decode_manifest
from emberkeep.adapters.backups.names import MANIFEST, SEAL, checked_name
from emberkeep.backups.model import BackupDamaged, BackupManifest, Member
from emberkeep.base.errors import Absent, Damaged, Fatal
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.errors import cannot_read, cannot_write, is_directory
from emberkeep.base.files.operations import SYSTEM_FILES

_PIECE = 1024**2
_LARGEST_SMALL = 256 * 1024**2  # bytes of a member that is read into memory


class BackupReader:
    """A backup that exists. All methods block. Raises Absent if it lacks a member, and Unavailable."""

    def __init__(self, path: Path) -> None:
        """Raises Absent, Unavailable, BackupDamaged."""
        self.path = path
        self._archive: tarfile.TarFile | None = None
        self._entries: dict[str, tarfile.TarInfo] = {}
        try:
            if path.is_dir():
                return
            self._archive = tarfile.open(path, "r:")  # noqa: SIM115 - closed by ``close``
            self._entries = {entry.name: entry for entry in self._archive if entry.isreg()}
        except tarfile.TarError as error:
            self.close()
            raise BackupDamaged(
                f"{path} is neither a directory nor a whole archive: {error}", hint="use another backup"
            ) from None
        except OSError as error:
            raise cannot_read(path, error) from error

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def names(self) -> set[str]:
        """Return the names of all files in the backup."""
        if self._archive is not None:
            return set(self._entries)
        found = set()
        for directory, _, files in os.walk(self.path):
            found |= {str((Path(directory) / file).relative_to(self.path)) for file in files}
        return found

    def read(self, name: str) -> bytes:
        """Return the content of a small member, unchecked."""
        data = bytearray()
        for piece in self._pieces(name):
            data += piece
            if len(data) > _LARGEST_SMALL:
                raise Damaged(f"{self.path}: {name} has more than {_LARGEST_SMALL} bytes")
        return bytes(data)

    def manifest(self) -> tuple[BackupManifest, bytes, bytes]:
        """Return the manifest, its bytes, and its seal. Raises BackupDamaged, NewerFormat."""
        where = f"{self.path}/{MANIFEST}"
        try:
            data, seal = self.read(MANIFEST), self.read(SEAL)
        except Absent as error:
            raise BackupDamaged(
                f"{self.path} is not a complete backup: {error.message}", hint="use another backup"
            ) from None
        return decode_manifest(data, where), data, seal

    def look_at(self, name: str) -> Member:
        """Return size and digest that a member has now."""
        digest, size = hashlib.sha256(), 0
        for piece in self._pieces(name):
            digest.update(piece)
            size += len(piece)
        return Member(name=name, size=size, sha256=digest.hexdigest())

    def extract(self, member: Member, target: Path, *, mode: int = 0o600) -> None:
        """Write a member to a file durably, replacing one that exists. Raises BackupDamaged, Fatal."""
        temporary = target.with_name(f".{target.name}.restoring")
        digest = hashlib.sha256()
        try:
            temporary.unlink(missing_ok=True)
            descriptor = SYSTEM_FILES.create(str(temporary), mode)
            try:
                for piece in self._pieces(member.name):
                    digest.update(piece)
                    SYSTEM_FILES.write(descriptor, piece)
                SYSTEM_FILES.sync(descriptor)
            finally:
                os.close(descriptor)
            if digest.hexdigest() != member.sha256:
                raise BackupDamaged(f"{self.path}: {member.name} is damaged", hint="use another backup")
            SYSTEM_FILES.rename(str(temporary), str(target))
            sync_directory(target.parent)
        except OSError as error:
            raise cannot_write(target, error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content of a member. Raises Absent, BackupDamaged, and what ``cannot_read`` returns."""
        with self._opened(name) as file:
            while piece := self._piece(name, file):
                yield piece

    def _piece(self, name: str, file: BinaryIO) -> bytes:
        try:
            return file.read(_PIECE)
        except tarfile.TarError as error:
            raise BackupDamaged(f"{self.path}: {name} cannot be read: {error}", hint="use another backup") from None
        except OSError as error:  # a bad sector, for instance
            raise cannot_read(self.path / name, error) from error

    def _opened(self, name: str) -> BinaryIO:
        checked_name(name)
        try:
            if self._archive is None:
                return (self.path / name).open("rb")
            if name not in self._entries:
                raise Absent(f"{name} is missing")
            found = self._archive.extractfile(self._entries[name])
        except FileNotFoundError:
            raise Absent(f"{name} is missing") from None
        except OSError as error:
            raise cannot_read(self.path / name, error) from error
        assert found is not None, "only regular files are listed"  # noqa: S101
        return found  # type: ignore[return-value]


def open_backup(path: Path) -> BackupReader:
    """Return the backup at ``path``. Raises Absent, Unavailable, BackupDamaged."""
    if not is_directory(path.parent):
        raise Fatal(f"{path} does not exist", hint="name the directory or the .tar file of a backup")
    return BackupReader(path)

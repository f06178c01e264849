"""Durable files: temporary file, fsync, rename, fsync the directory.

A crash at any byte leaves the old or the new file.

A record is a payload with a one-line header (kind, version, length, CRC-32C). So a torn, truncated or flipped file is
detected when it is read, and is never taken for data.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import google_crc32c

from emberkeep.base.errors import Absent, Conflict, Damaged, Fatal, NewerFormat
from emberkeep.base.files.errors import cannot_read, cannot_write, shortage
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps

# A file system without hard links, or one that forbids them.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK})

_MAGIC = "emberkeep-record"
_HEADER_FIELDS = 5
_VERSION_DIGITS = 9  # maximum number of digits in a version

# For each version, a step that converts its payload to the next version. A payload is read through all steps up to the
# current version, and written in the current version. A step raises ValueError for a payload that does not fit.
Migrations = Mapping[int, Callable[[bytes], bytes]]
NO_MIGRATIONS: Migrations = MappingProxyType({})


def write_file(path: Path, data: bytes, *, mode: int = 0o600, files: FileOps = SYSTEM_FILES) -> None:
    """Replace ``path`` with ``data`` atomically and durably. Raises Fatal (no space, no permission, …)."""
    temporary = str(path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp"))
    try:
        try:
            _write_synced(temporary, data, mode, files)
            files.rename(temporary, str(path))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                files.unlink(temporary)
            raise
        sync_directory(path.parent, files)
    except OSError as error:
        raise Fatal(
            f"cannot write {path}: {error.strerror or error}",
            hint=shortage(error) or "check the free space and the permissions of that directory",
        ) from error


def create_file(path: Path, data: bytes, *, mode: int = 0o600, files: FileOps = SYSTEM_FILES) -> None:
    """Create ``path`` with ``data`` atomically and durably. Of several callers at once, one succeeds.

    Raises Conflict (it exists), Fatal (no space) or Unavailable (its directory cannot be written now).
    """
    temporary = str(path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp"))
    try:
        try:
            _write_synced(temporary, data, mode, files)
            give_new_name(temporary, str(path), files)
        finally:
            with contextlib.suppress(FileNotFoundError):
                files.unlink(temporary)
        sync_directory(path.parent, files)
    except FileExistsError:
        raise Conflict(f"{path} already exists") from None
    except OSError as error:
        raise cannot_write(path, error) from error


def _write_synced(path: str, data: bytes, mode: int, files: FileOps) -> None:
    """Write a new file whose bytes survive a power loss. Its name may not survive yet. Raises OSError."""
    descriptor = files.create(path, mode)
    try:
        files.write(descriptor, data)
        files.sync(descriptor)
    finally:
        os.close(descriptor)


def give_new_name(temporary: str, path: str, files: FileOps) -> None:
    """Give a temporary file its name unless that name exists. File systems support one of two ways to do that.

    The temporary name may be left. Raises FileExistsError, OSError.
    """
    try:
        files.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        files.rename_new(temporary, path)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files that crashes during ``write_file`` left next to ``path``.

    Only for the file's single writer. Raises OSError.
    """
    for temporary in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def sync_directory(path: Path, files: FileOps = SYSTEM_FILES) -> None:
    """Make renames and deletions inside ``path`` survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.sync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path, mode: int = 0o700, files: FileOps = SYSTEM_FILES) -> None:
    """Make a directory, and those above it that are missing, so that their names survive a power loss.

    The name of one that exists is synced as well, because its maker may have died before it did that. A caller that
    comes often remembers that it has been here. Raises OSError.
    """
    if not path.is_dir():
        if not path.parent.is_dir():
            make_directories(path.parent, mode, files)
        with contextlib.suppress(FileExistsError):
            files.make_directory(str(path), mode)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    with contextlib.suppress(PermissionError):  # a directory that may be passed, and not read, cannot be opened
        sync_directory(path.parent, files)


def write_record(
    path: Path, kind: str, version: int, payload: bytes, *, mode: int = 0o600, files: FileOps = SYSTEM_FILES
) -> None:
    """Write ``payload`` as a self-checking record. Raises Fatal."""
    write_file(path, encode_record(kind, version, payload), mode=mode, files=files)


def read_record(path: Path, kind: str, version: int, read: Callable[[Path], bytes] | None = None) -> bytes:
    """Return the record's payload. ``read`` returns a file's content, and raises OSError; None: as usual.

    Raises Absent (no such file), Unavailable (it cannot be read now) and what ``decode_record`` raises.
    """
    try:
        data = path.read_bytes() if read is None else read(path)
    except FileNotFoundError:
        raise Absent(f"{path} does not exist") from None
    except OSError as error:
        raise cannot_read(path, error) from error
    return decode_record(data, kind, version, where=str(path))


def encode_record(kind: str, version: int, payload: bytes) -> bytes:
    """Return header line and payload."""
    checksum = google_crc32c.value(payload)
    return f"{_MAGIC} {kind} {version} {len(payload)} {checksum:08x}\n".encode() + payload


def record_version(header: bytes) -> tuple[str, int] | None:
    """Return kind and version from a record's first bytes, unchecked; None if they are not a record's."""
    fields = header.partition(b"\n")[0].decode("ascii", "replace").split(" ")
    if len(fields) != _HEADER_FIELDS or fields[0] != _MAGIC:
        return None
    if not fields[2].isdecimal() or len(fields[2]) > _VERSION_DIGITS:
        return None
    return fields[1], int(fields[2])


def decode_record(data: bytes, kind: str, version: int, migrations: Migrations = NO_MIGRATIONS, *, where: str) -> bytes:
    """Check a record and return its payload, migrated to ``version``.

    Raises Damaged (torn, corrupt), NewerFormat (written by a newer release) or Fatal (another kind, or older than
    ``migrations`` can convert), each naming ``where`` and what is wrong.
    """
    header, newline, payload = data.partition(b"\n")
    fields = header.decode("ascii", "replace").split(" ")
    found = record_version(header)
    if not newline or found is None:
        raise Damaged(f"{where}: not an Emberkeep record")
    if fields[3] != str(len(payload)) or fields[4] != f"{google_crc32c.value(payload):08x}":
        raise Damaged(f"{where}: damaged (length or checksum differs)")
    found_kind, written = found
    if found_kind != kind:
        raise Fatal(f"{where}: a record of kind {found_kind!r}, expected {kind!r}")
    if written > version:
        raise NewerFormat(
            f"{where}: {kind} version {written} was written by a newer release",
            hint=f"this release reads up to version {version}: start the newer release again",
        )
    for step in range(written, version):
        if step not in migrations:
            raise Fatal(
                f"{where}: {kind} version {written} is too old for this release",
                hint="upgrade through the releases in between, one after the other",
            )
        try:
            payload = migrations[step](payload)
        except ValueError as error:
            raise Damaged(f"{where}: not a valid {kind} of version {step}: {error}") from error
    return payload

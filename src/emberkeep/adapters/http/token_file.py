"""The file with the bearer token. Anyone who can read it has full control over the cluster."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from pathlib import Path

from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import give_new_name, make_directories, sync_directory
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{32,512}")


def load_token(path: Path) -> str:
    """Return the token in ``path``.

    Raises Fatal if the file is missing, has another owner, can be read or written by others, or has no valid token.
    """
    try:
        return _load(path)
    except OSError as error:
        raise _unusable(path, error) from error


def load_or_create_token(path: Path, files: FileOps = SYSTEM_FILES) -> str:
    """Return the token in ``path``; if there is no file, create it (mode 0600) with a random token.

    Processes that start at the same moment agree on one token. Raises Fatal as ``load_token`` does, and if the file
    cannot be created.
    """
    if not path.is_symlink() and not path.exists():
        try:
            make_directories(path.parent)
            _create(path, files)
        except OSError as error:
            raise _unusable(path, error) from error
    return load_token(path)


def _unusable(path: Path, error: OSError) -> Fatal:
    return Fatal(
        f"cannot use the token file {path}: {error.strerror or error}",
        hint="check the path in security.token-file and its permissions",
    )


def _load(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Fatal(f"the token file {path} is a symbolic link", hint="name the file itself") from None
        raise
    try:
        _check_private(path, os.fstat(descriptor))
        token = os.read(descriptor, 4096).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if not _TOKEN.fullmatch(token):
        raise Fatal(
            f"the token file {path} holds no valid token",
            hint="it must hold 32 to 512 letters, digits or . _ ~ + / = -; delete it to get a new one",
        )
    return token


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Fatal(f"the token file {path} is not a regular file", hint="check security.token-file")
    if status.st_uid != os.geteuid():
        raise Fatal(f"the token file {path} belongs to another user", hint="use a file of your own")
    if status.st_mode & 0o077:
        raise Fatal(
            f"the token file {path} can be read or written by others (mode {status.st_mode & 0o777:04o})",
            hint=f"run `chmod 600 {path}`; if others may have read it, delete it instead and restart the cluster",
        )


def _create(path: Path, files: FileOps) -> None:
    """Give a complete file its name, without ever replacing another process's new token."""
    temporary = str(path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp"))
    try:
        descriptor = files.create(temporary)
        try:
            files.write(descriptor, secrets.token_urlsafe(32).encode() + b"\n")
            files.sync(descriptor)
        finally:
            os.close(descriptor)
        try:
            give_new_name(temporary, str(path), files)
        except FileExistsError:
            return
        sync_directory(path.parent, files)
    finally:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(temporary)

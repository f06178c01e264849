"""Files with a secret: only their owner may read or write them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from emberkeep.base.errors import Fatal

_LONGEST = 4096  # bytes


def read_private(path: Path, key: str) -> str:
    """Return the text in a file, without white space around it. ``key``: the option that names the file.

    Raises Fatal if the file cannot be read, is a symbolic link, has another owner, or is accessible to others.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _check_private(path, os.fstat(descriptor), key)
            return os.read(descriptor, _LONGEST).decode("utf-8", "replace").strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Fatal(
            f"{key}: cannot read {path}: {error.strerror or error}",
            hint="name a regular file that this user may read, not a symbolic link",
        ) from error


def _check_private(path: Path, status: os.stat_result, key: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Fatal(f"{key}: {path} is not a regular file", hint="name the file itself")
    if status.st_uid != os.geteuid():
        raise Fatal(f"{key}: {path} belongs to another user", hint="use a file of your own")
    if status.st_mode & 0o077:
        raise Fatal(
            f"{key}: {path} can be read or written by others (mode {status.st_mode & 0o777:04o})",
            hint=f"run `chmod 600 {path}`; if others may have read it, change the secret",
        )

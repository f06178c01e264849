"""Files and directories that others may not read or write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import make_directories

NOT_FOR_ALL = 0o775  # the mode of a new directory, before the umask, where 0777 would let everybody write
_LONGEST = 4096  # bytes


def make_private(path: Path) -> None:
    """Create a directory that only its owner can use, unless it exists, and the directories above it.

    Those above it have the modes that the umask leaves them, but not everybody can write there. Raises OSError.
    """
    _make(path, 0o700)


def make_private_durably(path: Path) -> None:
    """As ``make_private``, for what must survive a power loss: the names of the directories do. Raises OSError."""
    if not path.parent.is_dir():
        make_directories(path.parent, NOT_FOR_ALL)
    make_directories(path, 0o700)


def _make(path: Path, mode: int) -> None:
    try:
        path.mkdir(mode=mode, exist_ok=True)
    except FileNotFoundError:
        if path.parent == path:
            raise
        _make(path.parent, NOT_FOR_ALL)  # pathlib's own way gives it all that the umask lets through
        path.mkdir(mode=mode, exist_ok=True)


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


def check_key_file(path: str) -> None:
    """Raise Fatal if others can read or write a certificate's key, or if the file cannot be found.

    The group of a file that root owns may read the file: this is how a system shares a key with its services.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise Fatal(
            f"cannot use the key {path}: {error.strerror}", hint="check the path, and that this user may read the file"
        ) from error
    others = 0o037 if status.st_uid == 0 else 0o077
    if status.st_mode & others:
        raise Fatal(
            f"the key {path} can be read or written by others (mode {status.st_mode & 0o777:04o})",
            hint=f"run `chmod 600 {path}`; if others may have read it, have a new certificate issued",
        )


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

"""Read, delete and hand over files in directories that another user, such as the user of a job, can change.

A name in such a directory may be a symbolic link, a hard link to another user's file, or a pipe. No function here
follows a link, waits for a pipe, or reads a file that does not belong to the owner of its directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from emberkeep.base.errors import Damaged
from emberkeep.base.processes.os_user import OsUser

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_BYTES = 64 * 1024**2  # of a file that is read whole: a sparse file has any size
_PLANTED = frozenset({errno.ELOOP, errno.EINVAL, errno.EPERM, errno.ENXIO})
_MOST_ROUNDS = 100_000  # a directory is not emptied against another process that fills it


def open_to_read(path: Path) -> int:
    """Return a descriptor of a regular file that belongs to the owner of its directory, or to this process's user.

    If this process's user is root, only the owner of the directory counts: any user can give a file of root a second
    name. Raises OSError.
    """
    return _open_of_owner(path, os.O_RDONLY)


def open_to_free(path: Path) -> int:
    """Return a descriptor with which parts of a regular file can be freed and read. See ``open_to_read``."""
    return _open_of_owner(path, os.O_RDWR)


def _open_of_owner(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_owner(path, os.fstat(descriptor), path.parent.stat().st_uid)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: Path, size: int | None = None) -> bytes:
    """Return the first ``size`` bytes of a file; None: all. See ``open_to_read``.

    Raises OSError, Damaged (the file has more than MOST_BYTES; or another user, who owns the directory, has put a link,
    a pipe, a directory or a third user's file there: waiting does not help).
    """
    try:
        descriptor = open_to_read(path)
    except OSError as error:
        if error.errno in _PLANTED and path.parent.stat().st_uid != os.geteuid():
            raise Damaged(f"{path}: {error.strerror}") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        if size is not None:
            return file.read(size)
        if os.fstat(descriptor).st_size > MOST_BYTES:
            raise Damaged(f"{path} has more than {MOST_BYTES // 1024**2} MiB")
        return file.read(MOST_BYTES)


def open_to_append(path: Path, user: OsUser) -> int:
    """Return a descriptor to append to a file of ``user``, which is created if it is missing. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        created = True
    except FileExistsError:
        descriptor, created = os.open(path, flags), False
    try:
        if created:
            os.fchown(descriptor, user.uid, user.gid)
        _check_owner(path, os.fstat(descriptor), user.uid)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(path: Path, status: os.stat_result, owner: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_uid not in {owner, os.geteuid() or owner}:
        raise OSError(errno.EPERM, "it does not belong to the owner of its directory", str(path))


def hand_over(directory: Path, user: OsUser) -> None:
    """Make ``user`` the owner of a directory and of everything in it. Raises OSError.

    Until then, no other user may be able to enter the directory: its content must not be hostile.
    """
    for _, folders, files, descriptor in os.fwalk(directory):
        for name in (*folders, *files):
            os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(directory, user.uid, user.gid, follow_symlinks=False)


def remove_tree(path: Path) -> None:
    """Delete a directory with everything in it, however deep and whatever the permissions in it.

    The parent directory must be this process's own. What cannot be deleted stays, without an error, and so does a
    ``path`` that is no directory.
    """
    try:
        top = os.open(path, _DIRECTORY)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):  # it cannot be listed now, for example for want of descriptors
            _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        path.rmdir()


def _empty(top: int) -> None:
    """Empty an open directory. Directories further down are moved into it first: so no tree is too deep."""
    _permit(top)
    for _ in range(_MOST_ROUNDS):
        removed = [_remove(top, name) for name in os.listdir(top)]
        if not any(removed):
            return


def _remove(top: int, name: str) -> bool:
    """Remove a file, or a directory whose own directories are moved into ``top``. Return False if that fails."""
    try:
        os.unlink(name, dir_fd=top)
    except IsADirectoryError:
        return _remove_directory(top, name)
    except OSError:
        return False
    return True


def _remove_directory(top: int, name: str) -> bool:
    try:
        inner = os.open(name, _DIRECTORY, dir_fd=top)
    except OSError:
        return False
    try:
        _permit(inner)
        for entry in os.listdir(inner):  # noqa: PTH208
            try:
                os.unlink(entry, dir_fd=inner)
            except IsADirectoryError:
                _move_up(inner, entry, top)
        os.rmdir(name, dir_fd=top)
    except OSError:
        return False
    finally:
        os.close(inner)
    return True


def _move_up(inner: int, entry: str, top: int) -> None:
    moved = os.open(entry, _DIRECTORY, dir_fd=inner)
    try:
        _permit(moved)  # moving a directory changes its "..", for which its owner needs permission to write
    finally:
        os.close(moved)
    os.rename(entry, f".removed-{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)


def _permit(directory: int) -> None:
    with contextlib.suppress(OSError):  # it belongs to another user: removing may succeed nevertheless
        os.fchmod(directory, 0o700)

"""Translation of a file system's errors, for state in a shared directory."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from emberkeep.base.errors import Fatal, Unavailable, UnknownOutcome
from emberkeep.base.files.errors import CANNOT_STORE

NO_ENTRY = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
# After these errors of a rename or the like, the file system has refused the change: it has not happened. After all
# others (the server is away, the disk has failed) it may have happened.
_REFUSED = CANNOT_STORE | {
    errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.EMFILE, errno.EMLINK, errno.ENFILE,
    errno.ENOENT, errno.ENOMEM, errno.ENOSYS, errno.ENOTDIR, errno.ENOTEMPTY, errno.EOPNOTSUPP, errno.EPERM,
    errno.EROFS, errno.EXDEV,
}  # fmt: skip


def refusal(action: str, error: OSError) -> Fatal | Unavailable:
    """Return the error for an action that the file system refused, by the rule of ``base.files.errors``.

    That is Fatal if the file system cannot store the data, else Unavailable.
    """
    message = f"cannot {action}: {error.strerror or error}"
    if error.errno in CANNOT_STORE:
        return Fatal(message, hint="free some space there")
    return Unavailable(message, hint="check that its file system is mounted and that this user may use it")


@contextlib.contextmanager
def changing(where: str) -> Iterator[None]:
    """Wrap a step that gives or removes a name.

    Raises UnknownOutcome if the step may have happened despite its error.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise unknown(where, error) from error
        raise


def unknown(where: str, error: OSError) -> UnknownOutcome:
    """Return the error for a change that may or may not have happened, or that may not be durable."""
    return UnknownOutcome(
        f"{where} may have changed, or not: {error.strerror or error}", hint="check its state before you try again"
    )

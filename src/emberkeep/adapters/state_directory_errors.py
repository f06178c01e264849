"""What a file system's error means for the state in a shared directory."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater, UnknownOutcome

NO_ENTRY = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
# The file server is away, restarting, or the mount is not there at the moment.
_AWAY = {
    errno.EAGAIN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.EINTR, errno.ENETDOWN, errno.ENETUNREACH, errno.ENOTCONN, errno.EREMOTEIO, errno.ESHUTDOWN, errno.ESTALE,
    errno.ETIMEDOUT,
}  # fmt: skip


def refusal(action: str, error: OSError) -> EmberkeepError:
    """The file system did not do what it was asked for."""
    message = f"cannot {action}: {error.strerror or error}"
    if error.errno in (*_AWAY, errno.ENOENT):  # somebody has removed a directory between two steps
        return RetryLater(message, hint="check that file system and its server")
    return Fatal(message, hint="check free space and permissions of that directory")


@contextlib.contextmanager
def changing(where: str) -> Iterator[None]:
    """Around a step that gives or takes a name: without an answer it may have happened."""
    try:
        yield
    except OSError as error:
        if error.errno in _AWAY or error.errno == errno.EIO:
            raise unknown(where, error) from error
        raise


def unknown(where: str, error: OSError) -> UnknownOutcome:
    """A change of ``where`` may or may not have happened, or may not last."""
    return UnknownOutcome(f"{where} may have changed, or not: {error.strerror or error}", hint="look at it again")

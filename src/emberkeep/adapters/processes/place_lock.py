"""A lock that keeps all other processes out of a directory, and names its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Conflict, Unavailable
from emberkeep.base.processes.process_identity import ProcessIdentity, own_identity

_LONGEST = 4096  # bytes of a lock file, which holds one short record


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The last process that took a lock. Written into the lock file (JSON); unknown fields are ignored."""

    name: str
    host: str
    process: ProcessIdentity

    def __str__(self) -> str:
        return f"{self.name}: pid {self.process.pid} on {self.host}"


@contextlib.contextmanager
def held(path: Path, name: str, *, hint: str, unnamed: str = "another process") -> Iterator[None]:
    """Hold the lock file ``path`` of an existing directory.

    ``name``: what to call this process in the errors of others. ``unnamed``: what to call a holder that has not
    recorded its name. Raises Conflict naming the holder, Unavailable (the directory cannot be used).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(
            f"cannot use {path}: {error.strerror}", hint="check that the directory exists and its permissions"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _decoded(os.pread(descriptor, _LONGEST, 0))
            raise Conflict(f"{path.parent} is in use by {holder or unnamed}", hint=hint) from None
        except OSError as error:
            raise Unavailable(
                f"cannot lock {path}: {error.strerror}",
                hint="use a file system with locks, such as a local disk, or start the lock service of this one",
            ) from error
        _write(descriptor, LockHolder(name=name, host=socket.gethostname(), process=own_identity()))
        yield
    finally:
        os.close(descriptor)


def last_holder(path: Path) -> LockHolder | None:
    """Return the last process that took the lock, which may have ended; None if no record of it can be read."""
    try:
        return _decoded(path.read_bytes()[:_LONGEST])
    except OSError:
        return None


def _write(descriptor: int, holder: LockHolder) -> None:
    """Write the holder into the lock file, for error messages.

    Ignore a failed write, for example on a full disk: the lock holds without this record.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(holder) + b"\n", 0)


def _decoded(data: bytes) -> LockHolder | None:
    try:
        return from_json(data, LockHolder)
    except msgspec.MsgspecError:
        return None

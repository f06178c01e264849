"""Holds a state file on its way to the durable store if the disk for local copies refuses the file.

The place is the system's temporary directory. The file has no name, so that a crash leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emberkeep.base.errors import Fatal

# Errors of file systems that cannot create nameless files: some network file systems and overlays, old kernels.
_NAMED_ONLY = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


class FileSpool:
    """A nameless temporary file; implements ``local_state.gateway_ports.Spool``."""

    def __init__(self) -> None:
        """Create the file. Raises Fatal."""
        self._written = 0
        self._file = -1
        with self._errors():
            self._file = _nameless(tempfile.gettempdir())

    @property
    def path(self) -> Path:
        return Path(f"/proc/{os.getpid()}/fd/{self._file}")

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        with self._errors():
            while view:
                written = os.write(self._file, view)
                self._written += written
                view = view[written:]

    def finish(self) -> int:
        return self._written

    def discard(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Fatal(
                f"cannot write a temporary file in {tempfile.gettempdir()}: {error.strerror}",
                hint="check that disk, or set TMPDIR",
            ) from error


def _nameless(directory: str) -> int:
    """Return the descriptor of a new nameless file. Raises OSError."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NAMED_ONLY:
            raise
    file, name = tempfile.mkstemp(prefix="emberkeep-", dir=directory)
    try:
        Path(name).unlink()
    except BaseException:
        os.close(file)
        raise
    return file

"""A start in two steps: the process exists, and becomes the program only once its parent lets it.

In between, its parent moves it into a control group, so that the program and all that it starts are in the group from
their first instruction. ``preexec_fn`` of ``subprocess`` would run Python in a fork of a process with threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from emberkeep.adapters.processes.entering import AS_STARTED

NEVER_LET: Final = 125
"""The exit code of a process whose parent has ended, or has abandoned it."""

_WAIT = f"""\
import os, signal, sys
gate = int(sys.argv[1])
if not os.read(gate, 1):
    os._exit({NEVER_LET})
os.close(gate)
{AS_STARTED}os.execvpe(sys.argv[2], sys.argv[2:], environ)
"""


class Gate:
    """``read_end``: the file descriptor that the process inherits."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe2(os.O_CLOEXEC)
        self._is_closed = False

    def argv(self, argv: Sequence[str]) -> list[str]:
        """Return the command that waits and then becomes ``argv``."""
        return [sys.executable, "-I", "-S", "-c", _WAIT, str(self.read_end), *argv]

    def open(self) -> None:
        """Let the process become the program, if it still lives."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, b"1")

    def close(self) -> None:
        """Let a process that still waits end. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self.read_end)
            os.close(self._write_end)


@contextlib.contextmanager
def open_gate() -> Iterator[Gate]:
    """Return a gate, and close it at the end. Raises OSError."""
    gate = Gate()
    try:
        yield gate
    finally:
        gate.close()


def require_program(argv: Sequence[str], environ: Mapping[str, str], directory: Path) -> None:
    """Raise what starting this program directly would raise, as far as that can be known: OSError, ValueError.

    A process that waits, or that enters a directory first, starts well, and its parent does not learn of errors
    afterwards.
    """
    if any("\0" in text for text in (*argv, *environ, *environ.values())):
        raise ValueError("embedded null byte")
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
    program = argv[0] if argv else ""
    if os.sep in program:
        path = directory / program
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        if path.is_dir() or not os.access(path, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
    elif shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)

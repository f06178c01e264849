"""A program that enters its directory by itself, after it was started.

A directory that a job names may be on a mount that does not answer. ``subprocess`` enters it between fork and exec, and
its caller waits for that, with the lock without which no other child is started or reaped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# The environment comes from the kernel, since Python changes its own in some locales. The signals are those that Python
# ignores when it starts; the program must not inherit that.
AS_STARTED: Final = """\
with open("/proc/self/environ", "rb") as file:
    environ = dict(each.split(b"=", 1) for each in file.read().split(b"\\0") if b"=" in each)
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
"""
_ENTER: Final = f"""\
import os, signal, sys
try:
    os.chdir(sys.argv[1])
except OSError as error:
    sys.exit(f"emberkeep: cannot enter {{sys.argv[1]}}: {{error.strerror}}")
{AS_STARTED}os.execvpe(sys.argv[2], sys.argv[2:], environ)
"""


def entering(directory: Path, argv: Sequence[str]) -> list[str]:
    """Return a command that enters ``directory`` and then becomes ``argv``."""
    return [sys.executable, "-I", "-S", "-c", _ENTER, str(directory), *argv]

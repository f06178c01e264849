"""The import path of the command and of the processes that it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from emberkeep.base.import_path import VARIABLE, with_safe_path
from emberkeep.cli.messages import say


def restore_safe_path(path: Sequence[str]) -> None:
    """Set Python's path to ``path`` without the current directory and folders that other users can write to.

    Remove such folders from ``PYTHONPATH`` too, for the processes that this command starts. A warning names them.
    """
    here = _here()
    named = [] if sys.flags.ignore_environment else os.environ.get(VARIABLE, "").split(os.pathsep)
    environ, refused = with_safe_path(os.environ, here)
    safe = environ.get(VARIABLE, "")
    unsafe = {str(here), *(str(Path(entry).absolute()) for entry in named if here or entry.startswith("/"))}
    unsafe -= set(safe.split(os.pathsep))
    sys.path[:] = [entry for entry in path if entry and entry not in unsafe]
    if safe:
        os.environ[VARIABLE] = safe
    else:
        os.environ.pop(VARIABLE, None)
    for folder in refused:
        say(f"warning: {folder} (from {VARIABLE})")


def _here() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it has been deleted
        return None

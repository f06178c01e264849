"""Listing files while processes make and delete them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path


def files_below(*roots: Path, name: str = "*") -> set[Path]:
    """Return the files below the directories whose names match ``name``.

    ``Path.rglob`` raises FileNotFoundError for a directory that is deleted meanwhile; this leaves it out.
    """
    return {path for root in roots for path in _walk(root) if fnmatchcase(path.name, name) and path.is_file()}


def _walk(root: Path) -> Iterable[Path]:
    for directory, _, names in os.walk(root):
        yield from (Path(directory) / each for each in names)

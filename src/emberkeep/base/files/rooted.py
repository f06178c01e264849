"""Directories below a root that may be unmounted at any time."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.files.durable import sync_directory


class RootedDirectories:
    """Makes directories durably below ``roots``, and the roots themselves only once.

    The caller checks the storage before each write. An unmount between that check and the write leaves an empty
    directory, in which nothing may be made. So the roots are made again only after a failure, which the next check
    follows. ``roots``: from the outside in. The directory above the first one must exist.
    """

    def __init__(self, *roots: Path) -> None:
        self._roots = roots
        self._are_made = False

    def make(self, *directories: Path) -> None:
        """Make what is missing of these, from the outside in. Raises OSError, also if a root that was made is gone."""
        roots = () if self._are_made else self._roots
        self._are_made = False
        for missing in (*roots, *directories):
            missing.mkdir(exist_ok=True, mode=0o700)
            sync_directory(missing.parent)
        self._are_made = True

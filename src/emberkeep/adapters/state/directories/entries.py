"""The status of files and directories below a shared directory. Links, pipes and other kinds do not exist there."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence

from emberkeep.adapters.state.names import INCOMING, is_side_file
from emberkeep.local_state.model import FileKind, FileStatus


def is_ours(found: os.stat_result) -> bool:
    """True for a regular file or a directory; false for links, pipes and other kinds."""
    return stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)


def status_of(name: str, found: os.stat_result) -> FileStatus:
    modified = found.st_mtime_ns
    if stat.S_ISDIR(found.st_mode):
        return FileStatus(
            name=name, kind=FileKind.DIRECTORY, length=0, modified_ms=modified // 1_000_000, generation=""
        )
    return FileStatus(
        name=name,
        kind=FileKind.FILE,
        length=found.st_size,
        modified_ms=modified // 1_000_000,
        generation=f"{found.st_ino:x}-{modified:x}-{found.st_size:x}",
    )


def entries_of(directory: int, parts: Sequence[str]) -> Iterator[FileStatus]:
    """Yield the entries of an open directory, by name. ``parts``: of its name below the root."""
    prefix = "".join(f"{part}/" for part in parts)
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if is_side_file(entry.name) or (entry.name == INCOMING and not parts):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                if is_ours(found):
                    yield status_of(prefix + entry.name, found)

"""Names of state files: which are valid, and which have a special meaning."""

from __future__ import annotations

import functools
import re

from emberkeep.base.errors import InvalidInput

_OWN = ".emberkeep-"
INCOMING = f"{_OWN}incoming"
"""Directory in each root for files that are being written and directories that are being deleted. Hidden."""
DIRECTORY_MARKER = f"{_OWN}directory"
"""Object that makes a name in an object store a directory, with or without files. Hidden."""

_LONGEST_PART = 255  # bytes
_TEMPORARY = re.compile(r"\..+\.tmp")
_SIDE_FILE = re.compile(r"\..+\.crc")


@functools.lru_cache(maxsize=4096)
def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of a name below a root, () for the root.

    Raises InvalidInput if the name leads out of the root, has an empty or too long part, or is reserved for Emberkeep.
    """
    if not name:
        return ()
    parts = tuple(name.split("/"))
    for part in parts:
        if part in ("", ".", "..") or "\0" in part or len(part.encode(errors="surrogateescape")) > _LONGEST_PART:
            raise InvalidInput(
                f"{name[:200]!r} is not the name of a state file", field="name", hint="parts joined by '/'"
            )
        if part.startswith(_OWN):
            raise InvalidInput(f"{part[:200]!r}: such names are reserved for Emberkeep", field="name")
    return parts


def is_temporary(part: str) -> bool:
    """True for ``.name.….tmp``, which Spark renames to its true name once complete, and abandons in a crash."""
    return _TEMPORARY.fullmatch(part) is not None


def is_side_file(part: str) -> bool:
    """True for ``.name.crc``, in which Hadoop's local file system keeps the checksums of ``name``."""
    return _SIDE_FILE.fullmatch(part) is not None


def side_file(part: str) -> str:
    """Return the name of the file that has the checksums of ``part``, see ``is_side_file``."""
    return f".{part}.crc"

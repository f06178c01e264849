"""Spark's layout of state stores below a checkpoint: to which partition a file belongs, and which version it completes.

Spark 4.3: ``state/<operator>/<partition>[/<store>]/`` contains ``<version>.delta``, ``.snapshot``, ``.changelog`` or
``.zip`` (``<version>_<uuid>.…`` in checkpoint format v2). RocksDB keeps shared files in ``SSTs/`` and ``logs/`` below
it.
"""

from __future__ import annotations

import re

_PARTITION = re.compile(r"(?:^|(?<=/))state/\d+/\d+(?=/)")
_VERSION = re.compile(r"(\d+)(?:_[^/]*)?\.(?:delta|snapshot|changelog|zip)")
_SHARED = ("SSTs", "logs")


def store_directory(name: str) -> str | None:
    """Return the directory of the state store to which a file below a root belongs; None if it belongs to none."""
    found = None
    for found in _PARTITION.finditer(name):  # noqa: B007 - the last one: a root may be called like one itself
        pass
    if found is None:
        return None
    inner, slash, _ = name[found.end() + 1 :].partition("/")
    if not slash or inner in _SHARED:
        return name[: found.end()]
    return f"{name[: found.end()]}/{inner}"


def is_store_directory(name: str) -> bool:
    """True if the directory ``name`` is that of a state store, according to its place."""
    leaf = name.rpartition("/")[2]
    is_file = "." in leaf  # Spark names no state store like that
    return not is_file and leaf not in _SHARED and leaf != "_metadata" and store_directory(f"{name}/file") == name


def store_version(name: str) -> int:
    """Return the state store version that this file completes; 0 if it completes none."""
    found = _VERSION.fullmatch(name.rpartition("/")[2])
    return int(found.group(1)) if found else 0

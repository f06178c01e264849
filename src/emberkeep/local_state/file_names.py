"""Facts that Spark's names for checkpoint files reveal.

Spark writes a file under a temporary name that contains a UUID and renames it, or writes it directly under a name with
a UUID (RocksDB's SST files, checkpoint format v2). Files with other names may be written again with other bytes: a
retried micro-batch of format v1 does so.
"""

from __future__ import annotations

import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# ``.<name>.<UUID>[.TID<task>].tmp``, as Spark's CheckpointFileManager makes them
_TEMPORARY = re.compile(rf"\.(?P<name>.+)\.{_UUID.pattern}(?:\.TID\d+)?\.tmp")


def is_unique(name: str) -> bool:
    """True if the last part of the name was made for these bytes alone: it is never written twice."""
    return _UUID.search(name.rpartition("/")[2]) is not None


def is_temporary(name: str) -> bool:
    """True if a file of this name will be renamed: no other process knows it."""
    return name.endswith(".tmp") and is_unique(name)


def renamed_to(name: str) -> str | None:
    """Return the name that Spark will give to a file with this temporary name; None if the name is not one."""
    directory, slash, leaf = name.rpartition("/")
    found = _TEMPORARY.fullmatch(leaf)
    return None if found is None else f"{directory}{slash}{found['name']}"

"""Where Spark's state stores keep what below a checkpoint: whose partition a file is of, and which version it makes.

Version 4.3: ``state/<operator>/<partition>[/<store>]/`` holds ``<version>.delta``, ``.snapshot``, ``.changelog`` or
``.zip`` (``<version>_<uuid>.…`` in checkpoint format v2); RocksDB puts shared files into ``SSTs/`` and ``logs/`` below.
"""

from __future__ import annotations

import re

_PARTITION = re.compile(r"(?:^|(?<=/))state/\d+/\d+(?=/)")
_VERSION = re.compile(r"(\d+)(?:_[^/]*)?\.(?:delta|snapshot|changelog|zip)")
_SHARED = ("SSTs", "logs")


def store_directory(name: str) -> str | None:
    """The directory of the state store that a file below a root belongs to; None: it is no state store's."""
    found = None
    for found in _PARTITION.finditer(name):  # noqa: B007 - the last one: a root may be called like one itself
        pass
    if found is None:
        return None
    inner, slash, _ = name[found.end() + 1 :].partition("/")
    if not slash or inner in _SHARED:
        return name[: found.end()]
    return f"{name[: found.end()]}/{inner}"


def store_version(name: str) -> int:
    """Of the state store's version that this file completes; 0: of none."""
    found = _VERSION.fullmatch(name.rpartition("/")[2])
    return int(found.group(1)) if found else 0

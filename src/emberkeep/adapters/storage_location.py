"""What kind of place a configured location names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from emberkeep.base.errors import Fatal

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_STORES = ("s3", "gs", "az")


def is_object_store(location: str) -> bool:
    """Whether obstore is to reach it. The rest are paths, file systems of Hadoop's, or nothing."""
    scheme = _SCHEME.match(location)
    return scheme is not None and scheme.group(1).lower() in _OBJECT_STORES


def directory_at(location: str, what: str) -> Path | None:
    """The directory that a path or file:// names; None: an object store is meant.

    ``what`` it is, for messages. Raises Fatal: no such kind of place.
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        return Path(location).absolute()
    kind = scheme.group(1).lower()
    if kind == "file":
        return _path_of(location)
    if kind not in _OBJECT_STORES:
        raise Fatal(
            f"{kind}:// is no kind of {what} that is known", hint="a directory, s3://, gs:// or az://bucket/prefix"
        )
    return None


def without_obstore(error: ModuleNotFoundError, what: str) -> Fatal:
    """The error for object stores where obstore is not installed; raises ``error`` when that says something else."""
    if error.name is None or not error.name.startswith("obstore"):
        raise error
    return Fatal(f"{what} needs obstore, which is not installed", hint="pip install 'emberkeep[object-store]'")


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or parts.fragment:
        raise Fatal(f"{url!r} is no path on this machine", hint="file:///path")
    return Path(path)

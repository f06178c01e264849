"""Checks of a savepoint's location: can it be a directory, and do two locations mean the same one."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.checkpoints import LOCATION_LIMIT

_LOCATION = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}  # Hadoop's schemes of S3, and the usual one
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH = 64  # characters that a savepoint's own directory adds


def check_location(location: str, field: str) -> None:
    """Raise InvalidInput unless ``location`` is an absolute path or a URI, short and without control characters."""
    if len(location) > LOCATION_LIMIT - _NAME_LENGTH:
        raise InvalidInput(f"{field} has {len(location)} characters", field=field, hint="choose a shorter one")
    if _CONTROL.search(location) or not _LOCATION.match(location):
        raise InvalidInput(
            f"{field}: {location[:80]!r} is not a directory",
            field=field,
            hint="give an absolute path, or a URI such as file:///path or s3://bucket/prefix",
        )


def is_same_place(one: str, other: str) -> bool:
    """True if both may name the same directory, compared in normalised form; links are not followed.

    >>> is_same_place("file:///savepoints/a", "/savepoints/a/")
    True
    >>> is_same_place("s3a://bucket/a", "s3://bucket/b")
    False
    """
    return _plain(one) == _plain(other)


def _plain(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path. Escapes are decoded: some readers decode them, others do not."""
    found = _SCHEME.match(location)
    scheme = found.group(1).lower() if found else "file"
    rest = location[found.end() :] if found else location
    authority = ""
    if found and rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
    if scheme == "file" and authority == "localhost":
        authority = ""
    path = posixpath.normpath("/" + unquote(rest).lstrip("/"))
    return HADOOP_SCHEMES.get(scheme, scheme), authority, path

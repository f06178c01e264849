"""Whether a text can name a directory that a savepoint lies in, and whether two name the same one."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.checkpoints import LOCATION_LIMIT

_LOCATION = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}  # of object stores as Spark knows them
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH = 64  # characters that a savepoint's own directory adds


def check_location(location: str, field: str) -> None:
    """Raises InvalidInput where no directory can be meant."""
    if len(location) > LOCATION_LIMIT - _NAME_LENGTH:
        raise InvalidInput(f"{field} has {len(location)} characters", field=field, hint="choose a shorter one")
    if _CONTROL.search(location) or not _LOCATION.match(location):
        raise InvalidInput(
            f"{field}: {location[:80]!r} is no directory",
            field=field,
            hint="an absolute path, or a URI such as file:///path or s3://bucket/prefix",
        )


def is_same_place(one: str, other: str) -> bool:
    """Whether both may name the same directory, as the ways to write one go; links are not followed.

    >>> is_same_place("file:///savepoints/a", "/savepoints/a/")
    True
    >>> is_same_place("s3a://bucket/a", "s3://bucket/b")
    False
    """
    return _plain(one) == _plain(other)


def _plain(location: str) -> tuple[str, str, str]:
    """Scheme, authority and path. Escapes are undone: some readers do that, and others do not."""
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

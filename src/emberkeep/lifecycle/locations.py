"""Compares the locations of savepoints, which are paths or URIs. Pure."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}  # Hadoop's schemes of S3, and the usual one


def is_same_place(one: str, other: str) -> bool:
    """True if both may name the same directory, compared in normalised form; links are not followed.

    >>> is_same_place("file:///savepoints/a", "/savepoints/a/")
    True
    >>> is_same_place("s3a://bucket/a", "s3://bucket/b")
    False
    """
    return place_key(one) == place_key(other)


def is_beside(one: str, other: str) -> bool:
    """True if both are in the same directory, compared in normalised form.

    >>> is_beside("file:///savepoints/a", "/savepoints/b")
    True
    >>> is_beside("/savepoints/a", "/savepoints/a/b")
    False
    """
    return is_same_place(f"{one}/..", f"{other}/..")


def place_key(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path: the same for two locations that may name the same directory.

    Escapes are decoded: some readers decode them, others do not.
    """
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

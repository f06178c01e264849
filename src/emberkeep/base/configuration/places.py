"""Settings that name a location, which must mean the same in every process, wherever the process was started.

A directory is an absolute path or a ``file:`` URI. Some locations may also be object stores, or any URI that Hadoop
supports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY, BLOB_HA_STORAGE
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, STORAGE_DIRECTORY, WORKING_DIRECTORY
from emberkeep.base.configuration.options.local_state import LOCAL_STATE_DIRECTORY
from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.configuration.options.security import TLS_CA, TLS_CERTIFICATE, TLS_KEY, TOKEN_FILE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput

OBJECT_STORES = ("s3", "gs", "az")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_A_DIRECTORY = "set an absolute path, or file:///path"
# The options that name locations. For each: the URI schemes that it accepts beside paths (None: any, checked where it
# is used), and what to set instead of an unusable one.
_PLACES: Mapping[str, tuple[tuple[str, ...] | None, str]] = {
    STATE_DIRECTORY.key: ((), _A_DIRECTORY),
    STORAGE_DIRECTORY.key: (
        (),
        f"{_A_DIRECTORY}, on a file system that all processes share; an object store may hold BLOBs "
        f"({BLOB_HA_STORAGE.key}) and savepoints ({SAVEPOINT_DIRECTORY.key})",
    ),
    WORKING_DIRECTORY.key: ((), _A_DIRECTORY),
    BLOB_DIRECTORY.key: ((), _A_DIRECTORY),
    LOCAL_STATE_DIRECTORY.key: ((), _A_DIRECTORY),
    TOKEN_FILE.key: ((), _A_DIRECTORY),
    TLS_CERTIFICATE.key: ((), _A_DIRECTORY),
    TLS_KEY.key: ((), _A_DIRECTORY),
    TLS_CA.key: ((), _A_DIRECTORY),
    BLOB_HA_STORAGE.key: (
        OBJECT_STORES,
        f"{_A_DIRECTORY}, or s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
    ),
    SAVEPOINT_DIRECTORY.key: (None, f"{_A_DIRECTORY}, or a URI"),
}


def scheme_of(place: str) -> str:
    """Return the scheme of a URI in lower case; "" for a path."""
    found = _SCHEME.match(place)
    return "" if found is None else found.group(1).lower()


def directory_of(key: str, place: str) -> str:
    """Return the path that a setting names, directly or as a ``file:`` URI. Raises InvalidInput naming the key."""
    try:
        return path_of(place) if scheme_of(place) == "file" else place
    except ValueError as error:
        raise InvalidInput(f"{key}: {error}", field=key, hint=_A_DIRECTORY) from None


def path_of(uri: str) -> str:
    """Return the absolute path that a ``file:`` URI names. Raises ValueError."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or parts.fragment:
        raise ValueError(f"{uri!r} is not a path on this machine")
    return path


def with_resolved_places(configuration: Configuration) -> Configuration:
    """Return the configuration with paths in place of ``file:`` URIs.

    Raises InvalidInput naming the key of a place that is relative or has a scheme that its option does not accept.
    """
    settings = dict(configuration.settings)
    for option, (schemes, hint) in _PLACES.items():
        setting = settings.get(option)
        if setting is not None:
            resolved = _resolved(setting.key, setting.value, schemes, hint)
            settings[option] = replace(setting, value=resolved, text=resolved)
    return Configuration(settings)


def with_plain_paths(configuration: Configuration) -> Configuration:
    """Return the configuration with paths in place of ``file:`` URIs, for a command of a user.

    A relative place stays: it is below the directory that the user is in. Raises InvalidInput naming the key of a URI
    that is no path on this machine.
    """
    settings = dict(configuration.settings)
    for option in _PLACES:
        setting = settings.get(option)
        if setting is not None and scheme_of(setting.value) == "file":
            path = directory_of(setting.key, setting.value)
            settings[option] = replace(setting, value=path, text=path)
    return Configuration(settings)


def _resolved(key: str, place: str, schemes: tuple[str, ...] | None, hint: str) -> str:
    if not place or place.startswith("/"):
        return place
    scheme = scheme_of(place)
    if scheme == "file":
        return directory_of(key, place)
    if not scheme:
        raise InvalidInput(
            f"{key}: {place!r} is relative: each process would resolve it to another directory", field=key, hint=hint
        )
    if schemes is not None and scheme not in schemes:
        raise InvalidInput(f"{key}: scheme {scheme!r} is not supported here", field=key, hint=hint)
    return place

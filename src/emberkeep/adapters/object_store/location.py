"""Distinguishes directories from object stores in configured locations."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.configuration.places import OBJECT_STORES, path_of, scheme_of
from emberkeep.base.errors import Fatal


def is_object_store(location: str) -> bool:
    """True if obstore serves ``location``. Other locations are paths, URIs that only Hadoop can use, or invalid."""
    return "://" in location and scheme_of(location) in OBJECT_STORES


def directory_at(location: str, what: str) -> Path | None:
    """Return the directory that a path or a file: URI names, or None for an object store.

    ``what``: what messages call the location, such as "HA store". Raises Fatal if the location is neither.
    """
    kind = scheme_of(location)
    if kind == "file":
        try:
            return Path(path_of(location))
        except ValueError as error:
            raise Fatal(str(error), hint="file:///path") from None
    if not kind or f"{kind}://" not in location.lower():
        return Path(location).absolute()
    if kind not in OBJECT_STORES:
        raise Fatal(
            f"{kind}:// is not a known kind of {what}", hint="use a directory, s3://, gs:// or az://bucket/prefix"
        )
    return None


def without_obstore(error: ModuleNotFoundError, what: str) -> Fatal:
    """Return the error for object stores if obstore is not installed. Raises ``error`` if another module is missing."""
    if error.name is None or not error.name.startswith("obstore"):
        raise error
    return Fatal(f"{what} needs obstore, which is not installed", hint="pip install 'emberkeep[object-store]'")

"""What kind of place a configured location names."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.configuration.places import OBJECT_STORES, path_of, scheme_of
from emberkeep.base.errors import Fatal


def is_object_store(location: str) -> bool:
    """Whether obstore is to reach it. The rest are paths, file systems of Hadoop's, or nothing."""
    return "://" in location and scheme_of(location) in OBJECT_STORES


def directory_at(location: str, what: str) -> Path | None:
    """The directory that a path or a file: URI names; None: an object store is meant.

    ``what`` it is, for messages. Raises Fatal: no such kind of place.
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
            f"{kind}:// is no kind of {what} that is known", hint="a directory, s3://, gs:// or az://bucket/prefix"
        )
    return None


def without_obstore(error: ModuleNotFoundError, what: str) -> Fatal:
    """The error for object stores where obstore is not installed; raises ``error`` when that says something else."""
    if error.name is None or not error.name.startswith("obstore"):
        raise error
    return Fatal(f"{what} needs obstore, which is not installed", hint="pip install 'emberkeep[object-store]'")

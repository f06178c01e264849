"""Which files of a job are unpacked for it, by their names, as Spark has it."""

from __future__ import annotations

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
ZIP_SUFFIXES = (".zip", ".jar")


def is_unpacked(name: str) -> bool:
    """Whether ``--archives`` unpacks a file of this name; others are left as they are."""
    return name.lower().endswith((*TAR_SUFFIXES, *ZIP_SUFFIXES))


def is_wheel(name: str) -> bool:
    """Whether a file of this name is a Python wheel, which is a zip file."""
    return name.lower().endswith(".whl")


def is_zip(name: str) -> bool:
    """Whether a file that is unpacked is a zip file; else it is a tar file."""
    return name.lower().endswith(ZIP_SUFFIXES) or is_wheel(name)

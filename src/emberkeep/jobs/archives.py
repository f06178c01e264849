"""Spark's rules for which of a job's files are unpacked, by file name."""

from __future__ import annotations

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
ZIP_SUFFIXES = (".zip", ".jar")


def is_unpacked(name: str) -> bool:
    """True if ``--archives`` unpacks a file of this name; other files are left as they are."""
    return name.lower().endswith((*TAR_SUFFIXES, *ZIP_SUFFIXES))


def is_wheel(name: str) -> bool:
    """True if a file of this name is a Python wheel, which is a zip file."""
    return name.lower().endswith(".whl")


def is_zip(name: str) -> bool:
    """True if a file that is unpacked is a zip file; otherwise it is a tar file."""
    return name.lower().endswith(ZIP_SUFFIXES) or is_wheel(name)

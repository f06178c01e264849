"""A job's archives: which of its files Spark unpacks, and which one contains the interpreter of its Python workers."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
ZIP_SUFFIXES = (".zip", ".jar")
WORKER_PYTHON = "spark.pyspark.python"  # the setting that names the interpreter

PACKING_HINT = (
    "pack an environment that brings its own interpreter (`conda-pack`, or a relocatable Python with the packages in "
    "it), or one made by `python -m venv --copies` from a Python that is installed at the same path on all nodes"
)


def is_unpacked(name: str) -> bool:
    """True if ``--archives`` unpacks a file of this name; other files are left as they are."""
    return name.lower().endswith((*TAR_SUFFIXES, *ZIP_SUFFIXES))


def is_wheel(name: str) -> bool:
    """True if a file of this name is a Python wheel, which is a zip file."""
    return name.lower().endswith(".whl")


def is_zip(name: str) -> bool:
    """True if a file that is unpacked is a zip file; otherwise it is a tar file."""
    return name.lower().endswith(ZIP_SUFFIXES) or is_wheel(name)


def packed_interpreter(python: str, archives: Iterable[str]) -> tuple[str, str] | None:
    """Return the archive that contains the interpreter ``python`` (as the job names it), and the path in it.

    Returns None if no archive contains it. Executors run in the directory that holds the archives, so only a path below
    that directory leads into an archive, such as ``./environment/bin/python``.
    """
    if not python or python.startswith("/"):
        return None
    name, _, path = posixpath.normpath(python).partition("/")
    return (name, path) if path and name in archives else None

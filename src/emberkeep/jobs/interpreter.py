"""Finds the interpreter of a job's Python workers if one of the job's archives contains it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

WORKER_PYTHON = "spark.pyspark.python"  # the setting that names the interpreter

PACKING_HINT = (
    "pack an environment that brings its own interpreter (`conda-pack`, or a relocatable Python with the packages in "
    "it), or one made by `python -m venv --copies` from a Python that is installed at the same path on all nodes"
)


def packed_interpreter(python: str, archives: Iterable[str]) -> tuple[str, str] | None:
    """Return the archive that contains the interpreter ``python`` (as the job names it), and the path in it.

    Returns None if no archive contains it. Executors run in the directory that holds the archives, so only a path below
    that directory leads into an archive, such as ``./environment/bin/python``.
    """
    if not python or python.startswith("/"):
        return None
    name, _, path = posixpath.normpath(python).partition("/")
    return (name, path) if path and name in archives else None

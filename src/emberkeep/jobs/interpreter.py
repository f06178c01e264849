"""Where the interpreter of a job's Python workers comes from, when it travels in one of the job's archives."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

WORKER_PYTHON = "spark.pyspark.python"  # the setting that names it

PACKING_HINT = (
    "pack an environment that brings its own interpreter (`conda-pack`, or a relocatable Python with the packages in "
    "it), or one made by `python -m venv --copies` from a Python that is installed at the same path on all nodes"
)


def packed_interpreter(python: str, archives: Iterable[str]) -> tuple[str, str] | None:
    """The archive, by the name that the job sees it by, and the path in it of the interpreter ``python``.

    None where it is not in one of them: executors run in the directory that holds the archives, so only a path below
    that one leads there, such as ``./environment/bin/python``.
    """
    if not python or python.startswith("/"):
        return None
    name, _, path = posixpath.normpath(python).partition("/")
    return (name, path) if path and name in archives else None

"""The daemon that forks an executor's Python workers, as PySpark has it, but imported from the installed package.

Spark puts archives of its own Python code first on the path. Importing from an archive takes several times as long as
from a directory, as nothing compiled is kept, and each executor does it once. If the installed package is the one to
which the archives belong, this module takes the archives off the path. It must import nothing else before that.

A standby executor has a warm Python, a fork of which becomes the daemon (see ``warm_python``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

MODULE = "emberkeep.spark.executors.python_daemon"
WARM_PYTHON = "EMBERKEEP_WARM_PYTHON"  # a variable: the path of the warm Python's socket
_ARCHIVES = Path("python", "lib")  # in the package pyspark


def without_archives(path: list[str]) -> list[str]:
    """Return an import path without the archives and jars of those pyspark packages that the path itself has."""
    folders = {Path(entry) for entry in path if entry}
    return [entry for entry in path if not _is_duplicate(Path(entry), folders)]


def _is_duplicate(entry: Path, folders: set[Path]) -> bool:
    if entry.suffix == ".jar":
        package = entry.parent.parent
    elif entry.suffix == ".zip" and entry.parent.parts[-2:] == _ARCHIVES.parts:
        package = entry.parent.parent.parent
    else:
        return False
    return package.name == "pyspark" and package.parent in folders


def main(module: str) -> bool:
    """Begin to serve as ``module``, in a fork of the warm Python if there is one. Return False if that is not so."""
    sys.path[:] = without_archives(sys.path)
    if not os.environ.get(WARM_PYTHON):
        return False
    from emberkeep.spark.executors.warm_python import run_forked

    return run_forked(Path(os.environ.pop(WARM_PYTHON)), module)


def run() -> None:
    """Serve until standard input ends."""
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__" and not main(MODULE):
    run()

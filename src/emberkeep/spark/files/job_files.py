"""A job's own files in its driver, as spark-submit would have made them available, without Spark sending them round.

Each node has bound them from its own BLOB cache: executors find them in their working directory. Here they are linked
into the directory that ``SparkFiles`` looks in, and put on Python's path.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from emberkeep.spark.model import JobFiles

_SUBMIT_PY_FILES = "spark.submit.pyFiles"


def add_to_path(files: JobFiles) -> None:
    """Make ``--py-files`` importable before a SparkContext exists: packages by their path, modules by their folder."""
    packages = [str(path) for name, path in files.py_files.items() if not _is_module(name)]
    folders = [str(path.parent) for name, path in files.py_files.items() if _is_module(name)]
    sys.path[1:1] = dict.fromkeys((*packages, *folders))


def attach(context: Any, files: JobFiles) -> None:
    """Make the files known to a new SparkContext. What the script has added under the same name stays.

    Raises OSError.
    """
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    for name, path in {**files.files, **files.py_files}.items():
        if not (root / name).exists():
            (root / name).symlink_to(path)
    # Workers put these, in their own working directory, on their paths; modules are found in that directory itself.
    known = context._python_includes
    known += [name for name in files.py_files if not _is_module(name) and name not in known]
    submitted = [*filter(None, [context._conf.get(_SUBMIT_PY_FILES, "")]), *map(str, files.py_files.values())]
    if submitted:
        context._conf.set(_SUBMIT_PY_FILES, ",".join(submitted))


def _is_module(name: str) -> bool:
    return name.lower().endswith(".py")

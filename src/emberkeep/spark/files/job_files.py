"""Make a job's own files available in its driver as spark-submit does, without Spark distributing them.

Each node provides the files from its own BLOB cache; executors find them in their working directory. In the driver they
are linked into the directory of ``SparkFiles`` and added to Python's path.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emberkeep.spark.model import JobFiles

_SUBMIT_PY_FILES = "spark.submit.pyFiles"


def add_to_path(files: JobFiles) -> None:
    """Make ``--py-files`` importable before a SparkContext exists: add packages, and the folders of modules.

    They come after the directory of the started program, unless ``-P`` leaves that directory out.
    """
    packages = [str(path) for name, path in files.py_files.items() if not _is_module(name)]
    folders = [str(path.parent) for name, path in files.py_files.items() if _is_module(name)]
    first = 0 if sys.flags.safe_path else 1
    sys.path[first:first] = dict.fromkeys((*packages, *folders))


def attach(context: Any, files: JobFiles) -> None:
    """Make the files known to a new SparkContext; a file that the script added under the same name stays.

    Raises OSError.
    """
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    folders = folder_links(files.import_folders)
    for name, path in {**files.files, **files.py_files, **folders}.items():
        if not (root / name).exists():
            (root / name).symlink_to(path)
    # Python workers add these packages in their working directory to their paths; they find modules there anyway.
    known = context._python_includes
    # A worker puts each of these first, so the last one takes precedence: packages over folders.
    known[:0] = [name for name in reversed(folders) if name not in known]
    known += [name for name in files.py_files if not _is_module(name) and name not in known]
    submitted = [*filter(None, [context._conf.get(_SUBMIT_PY_FILES, "")]), *map(str, files.py_files.values())]
    if submitted:
        context._conf.set(_SUBMIT_PY_FILES, ",".join(submitted))


def folder_links(folders: Sequence[str | None]) -> dict[str, Path]:
    """Return these folders by the names that they get in the Python workers' directory of files; leave out None.

    Unlike ``PYTHONPATH``, a name there takes effect only after a worker has imported what it needs itself.
    """
    return {f".emberkeep-imports-{number}": Path(folder) for number, folder in enumerate(folders) if folder is not None}


def _is_module(name: str) -> bool:
    return name.lower().endswith(".py")

"""Start of the project's commands: make the import path safe, then run the application.

Before that, nothing may be imported that Python itself has not imported: any other module could come from a folder in
``PYTHONPATH`` that other users can write to. For the same reason this module has no ``from __future__ import``.
"""

import os
import sys


def main() -> int:
    """Run ``emberkeep`` and return its exit code."""
    _make_path_safe()
    from emberkeep.cli.application import main as run

    return run()


def spark_submit() -> int:
    """Run ``emberkeep-spark-submit`` and return its exit code."""
    _make_path_safe()
    from emberkeep.cli.spark_submit.application import main as run

    return run()


def _make_path_safe() -> None:
    path = list(sys.path)
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    installation = tuple(prefix + os.sep for prefix in prefixes)
    sys.path[:] = [entry for entry in path if entry.startswith(installation)]
    from emberkeep.cli.import_path import restore_safe_path

    restore_safe_path(path)


if __name__ == "__main__":
    sys.exit(main())

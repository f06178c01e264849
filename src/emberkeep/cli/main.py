"""Start of the ``emberkeep`` command: make the import path safe, then run the application.

Before that, nothing may be imported that Python itself has not imported: any other module could come from a folder in
``PYTHONPATH`` that other users can write to. For the same reason this module has no ``from __future__ import``.
"""

import os
import sys


def main() -> int:
    """Run the command and return its exit code."""
    path = list(sys.path)
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    installation = tuple(prefix + os.sep for prefix in prefixes)
    sys.path[:] = [entry for entry in path if entry.startswith(installation)]
    from emberkeep.cli.import_path import restore_safe_path

    restore_safe_path(path)
    from emberkeep.cli.application import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())

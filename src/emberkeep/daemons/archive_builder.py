"""Builds the class-data archive in the background: ``python -m emberkeep.daemons.archive_builder <parent pid>``.

A task manager starts this process. It runs at the lowest priority and ends when its parent does. On failure, the last
line on standard error is the reason.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from emberkeep.base.processes.background import end_with_parent, give_way

EXIT_BUSY = 75  # another process is building: EX_TEMPFAIL
LIMIT_SECONDS = 4 * 3600.0
"""Limit for a build at idle priority, which needs a minute of processor time that no other process uses."""


def main(arguments: list[str]) -> int:
    """Build the archive if needed. Return the exit code."""
    signal.signal(signal.SIGTERM, _end)
    end_with_parent(int(arguments[0]))
    give_way()
    return _build()


def _build() -> int:
    # Imported here, so that even the imports give way.
    from emberkeep.base.errors import EmberkeepError
    from emberkeep.daemons.process_main import EXIT_FAILED, EXIT_OK
    from emberkeep.spark.errors import ClassArchiveBusy
    from emberkeep.spark.java import find_java
    from emberkeep.spark.jvm.class_archive import build_class_archive, default_directory

    try:
        directory = default_directory(os.environ)
        build_class_archive(find_java(os.environ), directory, os.environ, waits=False, seconds=LIMIT_SECONDS)
    except ClassArchiveBusy:
        return EXIT_BUSY
    except EmberkeepError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED
    return EXIT_OK


def _end(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``emberkeep prepare``: builds the class-data archive for this Java and this Spark, unless it exists."""

from __future__ import annotations

import os
import sys

from emberkeep.base.errors import EmberkeepError
from emberkeep.daemons.process_main import EXIT_FAILED, EXIT_OK
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.class_archive import (
    build_class_archive,
    default_directory,
    find_class_archive,
    is_being_built,
)

_EXIT_INTERRUPTED = 130


def main() -> int:
    """Build the archive if needed. Return the exit code."""
    directory = default_directory(os.environ)
    try:
        java = find_java(os.environ)
        archive = find_class_archive(java, directory, os.environ)
        if archive is not None:
            _say(f"the class archive exists: {archive}")
            return EXIT_OK
        if is_being_built(directory):
            _say("another process is building the class archive; waiting for it")
        else:
            _say("building the class archive; this takes about a minute")
        _say(f"done: {build_class_archive(java, directory, os.environ)}")
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except EmberkeepError as error:
        sys.stderr.write(f"emberkeep: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"  hint: {error.hint}\n")
        return EXIT_FAILED
    return EXIT_OK


def _say(text: str) -> None:
    sys.stderr.write(f"emberkeep: {text}\n")


if __name__ == "__main__":
    sys.exit(main())

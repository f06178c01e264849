"""Exit codes of the command, and the exit code for each error."""

from __future__ import annotations

import enum

from emberkeep.base.errors import Absent, InvalidInput


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TIMED_OUT = 5
    INTERRUPTED = 130


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code for an error that ends the command."""
    from emberkeep.client.errors import NoCluster, Unreachable

    if isinstance(error, InvalidInput):
        return ExitCode.USAGE
    if isinstance(error, Absent):
        return ExitCode.NOT_FOUND
    if isinstance(error, Unreachable | NoCluster):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED

"""Exit codes of the command, the exit code for each error, and how a command is called and ends."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Sequence

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput
from emberkeep.base.files.errors import CANNOT_STORE, file_problem
from emberkeep.cli.messages import DEBUG_VARIABLE, is_debugging, prepare_streams, say_error, show_traceback

_SHOWN = 20  # characters on each side of bytes that are not UTF-8


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


def called(app: App, words: Sequence[str], usage: ExitCode) -> int:
    """Call a command with its words and return its exit code: ``usage`` for a mistake in the words."""
    try:
        result = app(words, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        from emberkeep.cli.usage_errors import usage_problem

        say_error(*usage_problem(app, error))
        return usage
    sys.stdout.flush()
    return result if isinstance(result, int) else ExitCode.OK


def ended(run: Callable[[], int], code_of: Callable[[EmberkeepError], int]) -> int:
    """Run a command and return its exit code. An error is printed as a message with a hint, never as a traceback.

    ``code_of`` gives the exit code for an error that was foreseen.
    """
    prepare_streams()
    try:
        return run()
    except EmberkeepError as error:
        if is_debugging():
            show_traceback(error)
        say_error(error.message, error.hint)
        return code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _give_up_output()  # its reader has gone
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001 - the boundary: even a bug of ours shows no traceback
        if is_debugging():
            show_traceback(error)
        if problem := _argument_problem(error):
            say_error(problem.message, problem.hint)
            return code_of(problem)
        bug = f"internal error: {type(error).__name__}: {error}", f"{DEBUG_VARIABLE}=1 shows where; please report it"
        say_error(*(_output_problem(error) or file_problem(error) or bug))
        return ExitCode.FAILED


def _argument_problem(error: Exception) -> InvalidInput | None:
    """Return the user's error if bytes of an argument cannot be encoded. Other texts may be secret."""
    if not isinstance(error, UnicodeEncodeError) or not any(error.object in word for word in sys.argv):
        return None
    shown = error.object[max(0, error.start - _SHOWN) : error.start + _SHOWN]
    return InvalidInput(f"{shown!r} is not UTF-8", hint="pass the text in UTF-8")


def _output_problem(error: Exception) -> tuple[str, str] | None:
    """Return message and hint if the error is that the output cannot be written, such as to a full disk."""
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    is_told = error.errno in CANNOT_STORE
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()
        is_told = True
    return (
        (f"cannot write the output: {error.strerror}", "check free space and quota where it goes") if is_told else None
    )


def _give_up_output() -> None:
    """Let standard output lead nowhere: Python would report its error again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

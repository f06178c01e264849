"""Run the user's script or module in this process, as `python script.py` would run it in a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import io
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as thread_pools
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import SourceFileLoader
from pathlib import Path

from emberkeep.base.processes.standard_streams import flush, say
from emberkeep.spark.script.cancellation import Cancelled
from emberkeep.spark.script.open_files import flush_files

# Emberkeep's own threads have this name prefix; all other non-daemon threads are the script's.
OWN_THREAD_PREFIX = "emberkeep"
_USAGE_EXIT_CODE = 2
_INTERRUPTED_EXIT_CODE = 130
_TERMINATED_EXIT_CODE = 143
_LONGEST_CHAIN = 100  # errors, each raised while the next one was handled
_OWN_FRAMES = (__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")


class OutcomeKind(Enum):
    FINISHED = "finished"  # ran to its end
    EXITED = "exited"  # SystemExit with any code
    RAISED = "raised"  # an uncaught exception, or the script cannot be opened
    CANCELLED = "cancelled"  # ended by our SIGTERM


@dataclass(frozen=True)
class ScriptOutcome:
    """The script's end. Whatever plain Python prints at that point has been printed. ``exit_code``: 0 to 255."""

    exit_code: int
    kind: OutcomeKind
    exception_type: str | None = None
    message: str | None = None
    traceback_text: str | None = None


CANCELLED = ScriptOutcome(_TERMINATED_EXIT_CODE, OutcomeKind.CANCELLED, message="cancelled")
BodyEnded = Callable[[ScriptOutcome], None]


def run_script(
    path: str,
    argv: list[str],
    ended: BodyEnded = lambda _: None,
    *,
    source: bytes | None = None,
    beside: bool = True,
) -> ScriptOutcome:
    """Run the file at ``path`` with ``sys.argv == [path, *argv]``. Call it in the main thread.

    - ``ended``: called with the outcome of the script's body, before waiting for its threads and running its exit
      handlers.
    - ``source``: the file's text, if it was read before and must not have changed since.
    - ``beside``: False keeps the script's folder off the import path.
    """
    try:
        if source is None:
            with io.open_code(str(Path(path).absolute())) as file:
                source = file.read()
    except OSError as error:
        message = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        say(f"emberkeep: {message}")
        return ScriptOutcome(_USAGE_EXIT_CODE, OutcomeKind.RAISED, type(error).__name__, message)
    sys.argv = [path, *argv]
    _set_first_path(str(Path(path).resolve().parent) if beside else None)

    def body() -> None:
        code = compile(source, path, "exec", dont_inherit=True)
        names = {"__file__": path, "__cached__": None, "__loader__": SourceFileLoader("__main__", path)}
        exec(code, _new_main(names))  # noqa: S102 - running the user's script is the purpose

    return _run(body, ended)


def run_module(name: str, argv: list[str], ended: BodyEnded = lambda _: None, *, beside: bool = True) -> ScriptOutcome:
    """Run a module or a package's ``__main__`` as ``python -m name`` does.

    ``ended``: see ``run_script``. ``beside``: False keeps the current directory off the import path.
    """
    _set_first_path(str(Path.cwd()) if beside else None)
    sys.argv = ["-m", *argv]

    def body() -> None:
        spec = _module_spec(name)
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        origin = spec.origin or name
        sys.argv = [origin, *argv]
        names = {
            "__file__": origin,
            "__cached__": spec.cached,
            "__loader__": spec.loader,
            "__package__": spec.parent,
            "__spec__": spec,
        }
        exec(code, _new_main(names))  # noqa: S102 - running the user's module is the purpose

    return _run(body, ended)


def _module_spec(name: str) -> importlib.machinery.ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.__main__".startswith(error.name):
            raise
        spec = None
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
        sys.exit(f"emberkeep: No module named {name}, or nothing in it that can be run with -m")
    return spec


def _set_first_path(directory: str | None) -> None:
    """Put the script's directory first, in place of the one that Python put there when this process started."""
    if sys.path and not sys.flags.safe_path:
        del sys.path[0]
    if directory is not None:
        sys.path.insert(0, directory)


def _new_main(names: Mapping[str, object]) -> dict[str, object]:
    """Install a new module ``__main__`` and return its namespace.

    The module stays afterwards, because the script's threads and exit handlers use it.
    """
    module = types.ModuleType("__main__")
    module.__dict__.update({"__builtins__": __builtins__, "__package__": None, "__spec__": None, **names})
    sys.modules["__main__"] = module
    return module.__dict__


def _run(body: Callable[[], None], ended: BodyEnded) -> ScriptOutcome:
    pid = os.getpid()
    before = set(threading.enumerate())
    with _outcome() as collected:
        body()
    if os.getpid() != pid:
        _end_forked_child(collected[-1].exit_code)
    with _outcome() as late:
        ended(collected[-1])
        _wait_for_threads(before)
        # The script's exit handlers may use Spark, so run them before the driver stops Spark. Emberkeep's own handlers
        # would run here, too, so the driver process must not have any.
        atexit._run_exitfuncs()
        flush_files()
        flush(sys.stdout)
        flush(sys.stderr)
    # An interruption or exit after the body counts as the script's outcome, unless the body had already failed.
    return late[-1] if late[-1].kind is not OutcomeKind.FINISHED and collected[-1].exit_code == 0 else collected[-1]


@contextlib.contextmanager
def _outcome() -> Iterator[list[ScriptOutcome]]:
    """Yield a list whose last element is the script's outcome, once the block has ended.

    Catch every exception in the block, and print it as plain Python does.
    """
    collected = [ScriptOutcome(0, OutcomeKind.FINISHED)]
    try:
        yield collected
    except SystemExit as end:
        collected.append(_exited(end))
    except Cancelled:
        collected.append(CANCELLED)
    except BaseException as error:  # noqa: BLE001 - the script's own error, whatever it is: shown and returned
        collected.append(_shown(error))


def _exited(end: SystemExit) -> ScriptOutcome:
    if end.code is None:
        return ScriptOutcome(0, OutcomeKind.EXITED)
    if isinstance(end.code, int):
        return ScriptOutcome(end.code & 0xFF, OutcomeKind.EXITED)
    with contextlib.suppress(Exception):  # as Python does
        flush(sys.stdout)
    text = _message(end.code)
    say(text)
    return ScriptOutcome(1, OutcomeKind.EXITED, message=text)


def _shown(error: BaseException) -> ScriptOutcome:
    """Print the script's error with the script's hook, and return the outcome. The hook may exit or fail, too."""
    error = error.with_traceback(_without_own_frames(error.__traceback__))
    outcome = _raised(error)
    with contextlib.suppress(Exception):  # as Python does
        flush(sys.stdout)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return _exited(end)
    except Cancelled:
        return CANCELLED
    except BaseException as broken:  # noqa: BLE001 - the hook's own error, whatever it is
        _without_context(broken, error)
        say("Error in sys.excepthook:")
        say("".join(traceback.format_exception(broken.with_traceback(_without_own_frames(broken.__traceback__)))))
        say("Original exception was:")
        sys.__excepthook__(type(error), error, error.__traceback__)
    return outcome


def _raised(error: BaseException) -> ScriptOutcome:
    text = "".join(traceback.format_exception(error))
    code = _INTERRUPTED_EXIT_CODE if isinstance(error, KeyboardInterrupt) else 1
    name = type(error).__name__ if type(error).__module__ in {"builtins", "__main__"} else _full_name(type(error))
    return ScriptOutcome(code, OutcomeKind.RAISED, name, _message(error), text)


def _full_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(error: object) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may fail in any way
        return f"<{type(broken).__name__} in __str__>"


def _without_context(error: BaseException, cause: BaseException) -> None:
    """Make ``error`` one that was not raised while ``cause`` was handled: Python calls its hook after that."""
    found: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if found is None or found.__context__ is cause:
            break
        found = found.__context__
    if found is not None:
        found.__context__ = None


def _without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FRAMES:
        trace = trace.tb_next
    return trace


def _wait_for_threads(before: set[threading.Thread]) -> None:
    """Wait for the script's non-daemon threads, as the interpreter does at its end."""

    def of_script() -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in before
            and not thread.daemon
            and thread is not threading.current_thread()
            and not thread.name.startswith(OWN_THREAD_PREFIX)
        ]

    _run_thread_exits()
    while threads := of_script():
        _shut_down_pools(set(threads))
        for thread in threads:
            thread.join()


def _run_thread_exits() -> None:
    """Call what packages have registered for the wait for threads, as the interpreter does before it.

    A ProcessPoolExecutor that was left open ends so. That of ThreadPoolExecutor is left out, because it would end
    Emberkeep's own pools: see ``_shut_down_pools``.
    """
    for each in reversed(getattr(threading, "_threading_atexits", ())):
        if getattr(each, "func", each) is not thread_pools._python_exit:
            try:
                each()
            except Exception as error:  # noqa: BLE001 - it is not the script's, and Python prints it as well
                traceback.print_exception(error)


def _shut_down_pools(threads: set[threading.Thread]) -> None:
    """Shut down the thread pools of these threads, as the interpreter does, because idle workers never end."""
    for pool in [candidate for candidate in gc.get_objects() if type(candidate) is ThreadPoolExecutor]:
        if threads & pool._threads:
            pool.shutdown(wait=False)


def _end_forked_child(exit_code: int) -> None:
    """End a forked child of the script that has reached the script's end, without any of Emberkeep's own steps."""
    flush(sys.stdout)
    flush(sys.stderr)
    atexit._run_exitfuncs()
    os._exit(exit_code)

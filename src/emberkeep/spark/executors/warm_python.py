"""Python that is started before an executor needs it: ``python -m emberkeep.spark.executors.warm_python <pid of JVM>``.

A standby executor has one. It imports what the daemon and the workers of PySpark import, and listens on a socket in its
working directory. When the executor's JVM starts the daemon of its Python workers, that process finds the socket and
asks for a fork, which becomes the daemon: with its files, environment, directory and path. Modules that start threads,
such as pandas, are not imported, because processes with threads must not be forked.

It answers no if the fork could not be what the daemon would have been. It ends with the JVM.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from emberkeep.base.processes.priority import can_be_raised, lower
from emberkeep.base.processes.variable_names import differing_variables

SOCKET = "python.sock"
MODULE = "emberkeep.spark.executors.warm_python"
_IMPORTED = ("pyspark.daemon", "pyspark.worker")
_FORMAT = 1
_LARGEST_REQUEST = 4 * 1024**2  # bytes; Linux bounds the environment by the size of the stack
_STANDARD_FILES = 3
_ANSWER_SECONDS = 5.0
_READ_AT_START = ("LANG*", "LC_*", "LD_*", "MALLOC_*", "PYTHON*")
# Variables of PySpark, and those that say where modules are, which is compared module by module.
_READ_LATER = ("PYTHONPATH", "PYTHON_WORKER_", "PYTHON_UNIX_DOMAIN_", "PYTHON_DAEMON_", "PYTHON_FAULTHANDLER_")


# --- in the process that becomes the daemon ---------------------------------------------------------------------------


def run_forked(place: Path, module: str) -> bool:
    """Let a fork of the warm Python run ``module``, and wait for its end. Return False if this process must run it.

    ``place``: the socket. SIGTERM ends the fork, too. If this process is killed, the JVM closes the fork's standard
    input, which ends it.
    """
    try:
        with contextlib.closing(_connect(place)) as connection:
            fork = _ask(connection, module)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"emberkeep: the Python workers start cold: {error}\n")
        return False
    signal.signal(signal.SIGTERM, lambda *_: _end(fork))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(_STANDARD_FILES):
        os.dup2(nothing, number)  # they are the fork's now
    select.select([fork], [], [])
    return True


def _end(fork: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fork, signal.SIGTERM)


def _connect(place: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_SECONDS)
    folder = os.open(place.parent, os.O_PATH)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{place.name}")  # the path of a socket has at most 107 bytes
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection


def _ask(connection: socket.socket, module: str) -> int:
    """Return a descriptor of the fork, which begins now. Raises OSError, ValueError (with the reason)."""
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "format": _FORMAT,
        "module": module,
        "executable": sys.executable,
        "flags": _flags(),
        "arguments": sys.argv,
        "original_arguments": sys.orig_argv,
        "path": sys.path,
        "environ": dict(os.environ),
        "directory": str(Path.cwd()),
        "umask": umask,
    }
    text = json.dumps(request).encode()  # bytes that are not UTF-8 travel as surrogates
    connection.sendall(len(text).to_bytes(4, "big"))
    socket.send_fds(connection, [text[:1]], list(range(_STANDARD_FILES)))
    connection.sendall(text[1:])
    answer = json.loads(_receive(connection))
    if "why_not" in answer:
        raise ValueError(answer["why_not"])
    fork = os.pidfd_open(int(answer["pid"]))
    connection.sendall(b"!")
    return fork


def _receive(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        part = connection.recv(4096)
        if not part:
            raise ValueError("the warm Python has ended")
        received += part
    return received


def _flags() -> str:
    """Return the interpreter's flags. The warm Python does without its directory on the path, and gets the daemon's."""
    return str(sys.flags).replace("safe_path=True", "safe_path=False")


# --- in the warm Python -----------------------------------------------------------------------------------------------


def main(jvm: int) -> None:
    """Import and listen, then wait for requests in the background. Print the pid of the process that waits."""
    _run_when_idle()
    for name in _IMPORTED:
        importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"the imports have started {threads - 1} threads: this process must not be forked")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(SOCKET)
    listener.listen()
    ended = os.pidfd_open(jvm)
    waiting = os.fork()
    if waiting:
        sys.stdout.write(f"{waiting}\n")
        sys.stdout.flush()
        os._exit(0)
    os.setsid()
    _run_when_idle()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(_STANDARD_FILES):
        os.dup2(nothing, number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    before = dict(os.environ)
    while True:
        ready, _, _ = select.select([listener.fileno(), ended], [], [])
        if ended in ready:
            return
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_ANSWER_SECONDS)
            if os.fork() == 0:
                listener.close()
                os.close(ended)
                _become(connection, before)


def _run_when_idle() -> None:
    if can_be_raised():  # the task manager raises it once a job takes the executor
        lower(os.getpid())


def _become(connection: socket.socket, before: Mapping[str, str]) -> None:
    """Become the daemon that the request describes. Does not return."""
    try:
        request, files = _read_request(connection)
        reason = _why_not(request, before)
        answer = {"why_not": reason} if reason else {"pid": os.getpid()}
        connection.sendall(json.dumps(answer).encode() + b"\n")
        if reason or not connection.recv(1):
            os._exit(0)  # the process starts cold
        connection.close()
        _take_over(request, files)
    except BaseException as error:  # noqa: BLE001 - what is wrong with this fork must not reach the next
        sys.stderr.write(f"emberkeep: a fork of the warm Python failed: {error!r}\n")
        os._exit(1)
    importlib.import_module(request["module"]).run()
    sys.exit(0)


def _read_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    if not 0 < size <= _LARGEST_REQUEST:
        raise ValueError(f"a request has {size} bytes")
    text, files, _, _ = socket.recv_fds(connection, 1, _STANDARD_FILES)
    while len(text) < size:
        part = connection.recv(size - len(text))
        if not part:
            raise ValueError("a request is incomplete")
        text += part
    request = json.loads(text)
    if request["format"] != _FORMAT or len(files) != _STANDARD_FILES:
        raise ValueError("a request comes from another release")
    return request, files


def _why_not(request: Mapping[str, Any], before: Mapping[str, str]) -> str:
    """Return why a fork of this process cannot become what the request describes; "" if it can."""
    differing = differing_variables(_without_later(before), _without_later(request["environ"]), _READ_AT_START)
    if differing:
        return f"they need other values of {', '.join(differing)}"
    if request["executable"] != sys.executable or request["flags"] != _flags():
        return "they need another interpreter, or other options of it"
    moved = _moved(request["path"])
    return f"they find another module {moved} on their path" if moved else ""


def _without_later(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(_READ_LATER)}


def _moved(path: Sequence[str]) -> str:
    """Return an imported module that another process would import from elsewhere; "" if there is none."""
    sys.path_importer_cache.clear()
    for name, origin in _origins():
        found = PathFinder.find_spec(name, path)
        if found is None or found.origin != origin:
            return name
    return ""


def _origins() -> Iterator[tuple[str, str]]:
    """Yield the imported modules that come from the path, with their files."""
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if "." not in name and name != "__main__" and spec is not None and spec.has_location and spec.origin:
            yield name, spec.origin


def _take_over(request: Mapping[str, Any], files: Sequence[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(request["directory"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    sys.argv[:] = request["arguments"]
    sys.orig_argv[:] = request["original_arguments"]
    sys.path[:] = request["path"]
    sys.path_importer_cache.clear()
    program = importlib.import_module(request["module"])
    begun = ModuleType("__main__")
    vars(begun).update({**vars(program), "__name__": "__main__"})
    sys.modules["__main__"] = begun


if __name__ == "__main__":
    main(int(sys.argv[1]))

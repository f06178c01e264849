"""Unpacks an archive in a process of its own, with bounded memory, file size and processor time.

The decoders of the standard library need as much memory as an archive's headers say. Only the system can bound that,
and only for a whole process: the task manager itself must not fail because of one job's archive.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.answers import answer_in
from emberkeep.base.processes.os_user import OsUser, credentials_of, environment_for
from emberkeep.base.processes.waited_for import waited_for
from emberkeep.taskmanager.libraries.unpacking import UnpackLimits, unpack

_POLL_SECONDS = 0.2
_LAST_CHARACTERS = 600
_WRONG_ARCHIVE = "check that it is the right archive; if it is, pack fewer and smaller files"


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the unpacking process must do. ``parent``: pid; the process ends when this is no longer its parent."""

    archive: str
    name: str
    target: str
    limits: UnpackLimits
    parent: int


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The Fatal error with which the unpacking process has failed."""

    message: str
    hint: str | None


def unpack_apart(
    archive: Path,
    name: str,
    target: Path,
    limits: UnpackLimits,
    stop: threading.Event,
    user: OsUser | None = None,
) -> None:
    """Do what ``unpack`` does, in a process with the memory and time of ``limits``. Blocks until done or ``stop``.

    ``user``: the user whom the process runs as; None: this process's user.

    Raises Fatal as ``unpack`` does, and if the process exceeds its limits. In that case the contents of ``target`` are
    unusable, and no process changes them afterwards.
    """
    order = _Order(archive=str(archive), name=name, target=str(target), limits=limits, parent=os.getpid())
    own_packages = () if user is None else ("-s",)  # the packages of the job's user are the job's code

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", *own_packages, "-m", __name__, msgspec.json.encode(order).decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment_for(user),
            cwd=None if user is None else "/",
            **credentials_of(user),
        )

    with waited_for(start) as process, process:
        try:
            out, err = _wait(process, stop)
        finally:
            process.kill()
    if stop.is_set() and process.returncode != 0:
        raise Fatal(f"{name} was not unpacked: the task manager ends")
    if process.returncode == -signal.SIGXCPU:
        raise Fatal(f"{name} takes more than {limits.cpu} s of processor time to unpack", hint=_WRONG_ARCHIVE)
    if process.returncode != 0:
        refusal = _refusal_in(out)
        if refusal is not None:
            raise Fatal(refusal.message, hint=refusal.hint)
        said = err.decode(errors="replace").strip()[-_LAST_CHARACTERS:]
        raise Fatal(f"cannot unpack {name}: its process ended with {process.returncode} {said}", hint=_WRONG_ARCHIVE)


def _refusal_in(out: bytes) -> _Refusal | None:
    """Return the refusal that the process has printed; None if there is none."""
    try:
        return from_json(answer_in(out), _Refusal)
    except msgspec.DecodeError:
        return None


def _wait(process: subprocess.Popen[bytes], stop: threading.Event) -> tuple[bytes, bytes]:
    """Return what the process has printed when it has ended; end it if ``stop`` is set."""
    while True:
        try:
            return process.communicate(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if stop.is_set():
                process.kill()


def _main(text: str) -> int:
    """Carry out an order. Print a Refusal if it fails."""
    order = from_json(text, _Order)
    archive, limits = Path(order.archive), order.limits
    refusal = None
    try:
        _bound(limits, limits.content(archive.stat().st_size))
        unpack(archive, order.name, Path(order.target), limits, lambda: os.getppid() != order.parent)
    except MemoryError:
        message = f"{order.name} needs more than {limits.memory // 1024**2} MiB of memory to unpack"
        refusal = _Refusal(message=message, hint=_WRONG_ARCHIVE)
    except Fatal as error:
        refusal = _Refusal(message=error.message, hint=error.hint)
    if refusal is None:
        return 0
    sys.stdout.buffer.write(msgspec.json.encode(refusal))
    return 1


def _bound(limits: UnpackLimits, largest_file: int) -> None:
    with contextlib.suppress(OSError, ValueError):  # without /proc, or where the system does not bound address space
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        _limit(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + limits.memory)
    _limit(resource.RLIMIT_CPU, limits.cpu, 1)  # SIGXCPU, then SIGKILL
    _limit(resource.RLIMIT_FSIZE, largest_file)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, most: int, grace: int = 0) -> None:
    """Set a soft limit, and a hard limit ``grace`` above it, unless stricter limits are in force."""
    _, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY or most + grace < hard:
        hard = most + grace
    resource.setrlimit(kind, (min(most, hard), hard))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))

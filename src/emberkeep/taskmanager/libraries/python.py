"""Checks that a packed Python environment works here: environments contain paths of the machine that made them."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from pathlib import Path

from emberkeep.base.clock import since_boot
from emberkeep.base.errors import Damaged, Fatal
from emberkeep.base.files.hostile import read_bytes
from emberkeep.base.processes.answers import answer_in
from emberkeep.base.processes.os_user import OsUser, credentials_of, environment_for
from emberkeep.base.processes.waited_for import waited_for
from emberkeep.jobs.archives import PACKING_HINT

START_SECONDS = 120.0
_MOST_LINKS = 40  # the kernel's limit
_PROGRAM = "import encodings, sys; print('%d.%d' % sys.version_info[:2])"
_LAST_CHARACTERS = 600
_MOST_OUTPUT = 64 * 1024  # bytes of each stream, and of pyvenv.cfg: all are the job's


def check_interpreter(environment: Path, path: str, archive: str, python: str, user: OsUser | None = None) -> None:
    """Check that the interpreter at ``path`` below ``environment`` starts and is Python ``python`` ("3.11"). Blocks.

    The interpreter is code of the job: it runs as ``user``, or as this process's user if that is None.

    Raises Fatal with the defect of ``archive`` and how to pack it instead.
    """
    interpreter = environment / path
    _check_links(interpreter, path, archive)
    if not os.access(interpreter, os.X_OK):
        raise Fatal(
            f"{path} in {archive} is not executable", hint="pack the environment with tar, which keeps permissions"
        )
    found = _start(interpreter, environment, path, archive, user)
    if found != python:
        raise Fatal(
            f"{path} in {archive} is Python {found}, but this cluster's drivers run Python {python}",
            hint=f"pack an environment made with Python {python}: Spark needs the same version in driver and executors",
        )


def _check_links(interpreter: Path, path: str, archive: str) -> None:
    """Raise Fatal if the interpreter is missing, with the target of the link that is broken."""
    here = interpreter
    for _ in range(_MOST_LINKS):
        if not here.is_symlink():
            break
        here = here.parent / here.readlink()
    if here.is_file():
        return
    if here == interpreter:
        raise Fatal(f"{archive} has no {path}", hint="spark.pyspark.python must be a path in the unpacked archive")
    raise Fatal(f"{path} in {archive} is a link to {here}, which is not on this node", hint=PACKING_HINT)


def _start(interpreter: Path, environment: Path, path: str, archive: str, user: OsUser | None) -> str:
    """Start the interpreter and return the version that it prints."""

    def start() -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [str(interpreter), "-I", "-c", _PROGRAM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=environment_for(user),
                cwd=None if user is None else "/",
                **credentials_of(user),
            )
        except OSError as error:
            reason = f"cannot be started: {error.strerror}"
            raise Fatal(f"{path} in {archive} {reason}", hint=PACKING_HINT) from error

    with waited_for(start) as process:
        try:
            out, err = _output(process)
        except subprocess.TimeoutExpired:
            raise Fatal(f"{path} in {archive} does not start within {START_SECONDS:g} s", hint=PACKING_HINT) from None
        finally:
            _end(process)
    if max(len(out), len(err)) > _MOST_OUTPUT:
        raise Fatal(f"{path} in {archive} prints too much to be Python", hint=PACKING_HINT)
    if process.returncode != 0:
        said = err.decode(errors="replace").strip()[-_LAST_CHARACTERS:]
        home = _absent_home(environment)
        reason = f"; its pyvenv.cfg says that it was made from {home}, which is not on this node" if home else ""
        raise Fatal(f"{path} in {archive} does not start{reason}: {said}", hint=PACKING_HINT)
    return answer_in(out).decode(errors="replace").strip()


def _output(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return what a process prints until it ends, or until it has printed too much. Raises TimeoutExpired."""
    deadline = since_boot() + START_SECONDS
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        while selector.get_map() and max(len(out), len(err)) <= _MOST_OUTPUT:
            ready = selector.select(max(0.0, deadline - since_boot()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, START_SECONDS)
            for key, _ in ready:
                chunk = os.read(key.fd, _MOST_OUTPUT)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    if max(len(out), len(err)) <= _MOST_OUTPUT:
        process.wait(max(0.0, deadline - since_boot()))
    return bytes(out), bytes(err)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _absent_home(environment: Path) -> str:
    """Return the interpreter's home directory from ``pyvenv.cfg`` if it does not exist here, else ""."""
    try:
        lines = read_bytes(environment / "pyvenv.cfg", _MOST_OUTPUT).decode("utf-8", "replace").splitlines()
    except (OSError, Damaged):
        return ""
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == "home" and not Path(value.strip()).is_dir():
            return value.strip()
    return ""

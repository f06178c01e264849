"""Start one of Emberkeep's daemons as a process, and wait until it is ready.

A daemon writes one line of JSON to its standard output: ``{"url": …, "token_file": …, "ca": …}`` once it serves, or
``{"error": …, "hint": …}`` before it ends because it cannot serve. Its output goes to files, which outlive this
process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal
from emberkeep.base.files.log_tail import last_lines, private_output
from emberkeep.base.files.private import make_private
from emberkeep.base.import_path import with_safe_path
from emberkeep.base.processes.process_identity import ProcessIdentity, identify

READY_TIMEOUT = 60.0  # seconds
_POLL = 0.05
_OUTLIVING: list[subprocess.Popen[bytes]] = []  # kept until this process ends, which does not wait for them


@atexit.register
def _leave_running() -> None:
    """Set return codes, because Python warns when it destroys the object of a child whose end was not awaited."""
    for process in _OUTLIVING:
        process.returncode = 0


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's line on its standard output. ``error`` is set if the daemon cannot serve."""

    url: str = ""
    token_file: str = ""
    ca: str = ""
    error: str = ""
    hint: str | None = None


@dataclass(frozen=True)
class DaemonCommand:
    """The command of a daemon. ``module`` is below ``emberkeep.daemons``.

    Output goes to ``<module>.out`` and ``<module>.err`` in ``directory``. If the daemon fails, ``output_hint`` says
    where to read more; if it is empty, that is ``<module>.err``.
    """

    module: str
    arguments: tuple[str, ...]
    directory: Path
    output_hint: str = ""

    @property
    def out(self) -> Path:
        return self.directory / f"{self.module}.out"

    @property
    def err(self) -> Path:
        return self.directory / f"{self.module}.err"


class Daemon:
    """A daemon that this process has started, in a session of its own."""

    def __init__(self, command: DaemonCommand, process: subprocess.Popen[bytes], identity: ProcessIdentity) -> None:
        self.command = command
        self.process = process
        self.identity = identity

    async def ready(self, timeout: float = READY_TIMEOUT) -> Announcement:  # noqa: ASYNC109 - it ends the daemon too
        """Wait for the daemon's announcement.

        Raises Fatal if the daemon cannot serve, has ended, or announces nothing in time. In each case the daemon has
        ended before the error is raised.
        """
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None  # asked before reading, so as not to miss a last announcement
            announcement = self._announcement()
            if announcement is not None and not announcement.error:
                return announcement
            if announcement is not None:
                self.kill()
                raise Fatal(announcement.error, hint=announcement.hint)
            if ended:
                raise self.died()
            if time.monotonic() > deadline:
                self.kill()
                raise Fatal(f"{self.command.module} was not ready after {timeout:g} s", hint=self._where())
            await asyncio.sleep(_POLL)

    def died(self) -> Fatal:
        """Return the error for the daemon's unexpected end."""
        code = self.process.poll()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        shown, hint = last_lines(self.command.err), self._where()
        if code == -signal.SIGKILL:
            hint = f"if nobody has killed it, it needs more memory: see MemoryMax=, memory.max and dmesg; {hint}"
        return Fatal(f"{self.command.module} {how}{':' if shown else ''}{_indented(shown)}", hint=hint)

    def kill(self) -> None:
        """Kill the daemon and reap it."""
        self.process.kill()
        self.process.wait()

    def outlive(self) -> None:
        """Let the daemon outlive this process, which does not wait for its exit code."""
        _OUTLIVING.append(self.process)

    def _announcement(self) -> Announcement | None:
        line, newline, _ = self.command.out.read_bytes().partition(b"\n")
        if not newline:
            return None
        try:
            return from_json(line, Announcement)
        except msgspec.MsgspecError:
            return Announcement(error=f"{self.command.module} printed {line[:200]!r} instead of its ready line")

    def _where(self) -> str:
        return self.command.output_hint or f"its output is in {self.command.err}"


def daemon_program(module: str) -> list[str]:
    """Return the command line that runs ``emberkeep.daemons.<module>``, without the daemon's own arguments.

    ``-P`` keeps the current directory off Python's module path, so no file there can replace a module.
    """
    return [sys.executable, "-P", "-m", f"emberkeep.daemons.{module}"]


def _environment() -> dict[str, str]:
    """Return this process's environment, without folders in ``PYTHONPATH`` that other users can write to."""
    environ, refused = with_safe_path(os.environ, Path.cwd())
    for folder in refused:
        warnings.warn(str(folder), RuntimeWarning, stacklevel=2)
    return environ


def start_daemon(command: DaemonCommand, *, stdin: int = subprocess.DEVNULL, pass_fds: Sequence[int] = ()) -> Daemon:
    """Start a daemon. Raises Fatal (its directory cannot be written, or the process cannot be started)."""
    try:
        make_private(command.directory)
        with private_output(command.out) as out, private_output(command.err) as err:
            process = subprocess.Popen(
                [*daemon_program(command.module), *command.arguments],
                env=_environment(),
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
                pass_fds=pass_fds,
            )
    except OSError as error:
        raise Fatal(f"cannot start {command.module}: {error.strerror} ({error.filename or sys.executable})") from error
    identity = identify(process.pid)
    daemon = Daemon(command, process, identity) if identity is not None else None
    if daemon is None:
        raise Daemon(command, process, ProcessIdentity(pid=process.pid, start_ticks=0, boot_id="")).died()
    return daemon


def _indented(text: str) -> str:
    return "".join(f"\n  {line}" for line in text.splitlines())

"""Starting a daemon of ours as a process, and hearing from it that it is ready.

A daemon writes one line of JSON to its standard output: ``{"url": …, "token_file": …}`` once it serves, or
``{"error": …, "hint": …}`` before it ends because it cannot. Its output goes to files, which outlive this process.
"""

from __future__ import annotations

import asyncio
import atexit
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emberkeep.base.errors import Fatal
from emberkeep.base.log_tail import last_lines
from emberkeep.base.process_identity import ProcessIdentity, identify

READY_TIMEOUT = 60.0  # seconds
_POLL = 0.05
_OUTLIVING: list[subprocess.Popen[bytes]] = []  # kept until this process ends: nobody waits for them


@atexit.register
def _leave_running() -> None:
    """Python warns of a child that still runs when its object goes, unless the child's end was seen."""
    for process in _OUTLIVING:
        process.returncode = 0


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The line. ``error`` is set when the daemon cannot serve."""

    url: str = ""
    token_file: str = ""
    error: str = ""
    hint: str | None = None


@dataclass(frozen=True)
class DaemonCommand:
    """``module``: below ``emberkeep.daemons``. ``directory``: gets ``<module>.out`` and ``<module>.err``.

    ``output_hint``: where to read more when it fails; empty: in that directory.
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
        """Wait for its announcement. Raises Fatal (it cannot serve, it ended, it says nothing); it has ended then."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None  # before the look, so that its last words are not missed
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
        """The error for its unexpected end."""
        code = self.process.poll()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        shown = last_lines(self.command.err)
        return Fatal(f"{self.command.module} {how}{':' if shown else ''}{_indented(shown)}", hint=self._where())

    def kill(self) -> None:
        """End it at once and take its exit code."""
        self.process.kill()
        self.process.wait()

    def outlive(self) -> None:
        """It goes on when this process has ended, so nobody here waits for its exit code."""
        _OUTLIVING.append(self.process)

    def _announcement(self) -> Announcement | None:
        line, newline, _ = self.command.out.read_bytes().partition(b"\n")
        if not newline:
            return None
        try:
            return msgspec.json.decode(line, type=Announcement)
        except msgspec.MsgspecError:
            return Announcement(error=f"{self.command.module} said {line[:200]!r} instead of that it is ready")

    def _where(self) -> str:
        return self.command.output_hint or f"its output is in {self.command.err}"


def daemon_program(module: str) -> list[str]:
    """What to execute for a daemon, without its arguments. No file in the present directory replaces a module of it."""
    return [sys.executable, "-P", "-m", f"emberkeep.daemons.{module}"]


def start_daemon(command: DaemonCommand, *, stdin: int = subprocess.DEVNULL, pass_fds: Sequence[int] = ()) -> Daemon:
    """Start it. Raises Fatal (its directory cannot be written, no process can be started)."""
    try:
        command.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with command.out.open("wb") as out, command.err.open("wb") as err:
            process = subprocess.Popen(
                [*daemon_program(command.module), *command.arguments],
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

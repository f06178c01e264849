"""The cluster that ``emberkeep run`` starts for one job: JobManager and task manager in one child process.

The child works in a private directory and ends all its jobs and processes when its standard input closes, which also
happens when this process is killed. When the child itself is killed, it is started again over the same directory and at
the same port, and takes the job over as it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from emberkeep.base.errors import Fatal
from emberkeep.client.daemon_process import Daemon, DaemonCommand, start_daemon
from emberkeep.client.discovery import read_token
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.leftovers import kill_below
from emberkeep.client.private_storage import PrivateStorage

MAX_RESTARTS = 5
HURRIED_TIMEOUT = 1.0
_POLL = 0.1
_DIRECTORY_PREFIX = "run-"
_KEEP_HINT = "run it with --keep-logs to keep all logs"


@dataclass(frozen=True)
class EmbeddedOptions:
    """``parent``: private directories are made below it. ``definitions``: "key=value" of ``-D``.

    ``stop_timeout``: seconds for the child to end its jobs and itself. ``storage``: where it keeps its data.
    """

    parent: Path
    config_file: Path | None
    definitions: Sequence[str]
    stop_timeout: float
    storage: PrivateStorage


class EmbeddedCluster:
    """Start with ``start``, end with ``stop``; ``supervise`` runs between them and restarts the child."""

    def __init__(self, options: EmbeddedOptions, notice: Callable[[str], None]) -> None:
        self._options = options
        self._notice = notice
        self._lock: int | None = None
        self._daemon: Daemon | None = None
        self._port = 0
        self._directory: Path | None = None

    @property
    def directory(self) -> Path | None:
        """The private directory, once ``start`` has made it."""
        return self._directory

    async def start(self) -> Endpoint:
        """Start the child and wait until it serves. Raises Fatal; nothing is left then."""
        self._directory, self._lock = _make_private_directory(self._options)
        return await self._start_child()

    async def supervise(self) -> None:
        """Restart the child whenever it ends by itself; returns never. Raises Fatal when that happens too often."""
        restarts = 0
        while True:
            daemon = self._child()
            while daemon.process.poll() is None:  # noqa: ASYNC110 - a process is no event of this loop
                await asyncio.sleep(_POLL)
            reason = daemon.died()
            _close_input(daemon)
            restarts += 1
            if restarts > MAX_RESTARTS:
                raise Fatal(f"{reason.message} (for the {restarts}th time)", hint=reason.hint)
            self._notice(f"the embedded cluster {reason.message.partition(' ')[2]}; starting it again, the job goes on")
            await self._start_child()

    def stop(self, hurry: Callable[[], bool], *, keep_directory: bool = False) -> None:
        """End the child, all that it has started, and (unless ``keep_directory``) remove the directory. Blocks.

        The child is killed after its stop timeout, or HURRIED_TIMEOUT after ``hurry`` answers True. Raises Fatal when
        something will not end.
        """
        if self._daemon is not None:
            _end(self._daemon, self._options.stop_timeout, hurry)
        if self._directory is None:
            return
        left = kill_below([self._directory])
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if left:
            raise Fatal(f"processes do not end: {', '.join(str(identity.pid) for identity in left)}")
        if not keep_directory:
            self._options.storage.remove(self._directory)
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _start_child(self) -> Endpoint:
        assert self._directory is not None, "start() comes first"  # noqa: S101
        arguments = ["--state-dir", str(self._directory)]
        if self._options.config_file is not None:
            arguments += ["--config", str(self._options.config_file)]
        own = self._options.storage.definitions(self._directory.name)
        for definition in (*self._options.definitions, *own, f"rest.port={self._port}"):
            arguments += ["-D", definition]
        command = DaemonCommand("local", tuple(arguments), self._directory, _KEEP_HINT)
        assert self._lock is not None, "the private directory is locked"  # noqa: S101
        # The child shares the lock: the directory counts as used as long as one of both lives.
        self._daemon = start_daemon(command, stdin=subprocess.PIPE, pass_fds=(self._lock,))
        ready = await self._daemon.ready()
        self._port = urlsplit(ready.url).port or 0
        return Endpoint(ready.url, read_token(Path(ready.token_file)), "the embedded cluster")

    def _child(self) -> Daemon:
        assert self._daemon is not None, "start() comes first"  # noqa: S101
        return self._daemon


def _end(daemon: Daemon, timeout: float, hurry: Callable[[], bool]) -> None:
    _close_input(daemon)
    if daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while daemon.process.poll() is None and time.monotonic() < deadline:
        if hurry():
            deadline = min(deadline, time.monotonic() + HURRIED_TIMEOUT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.process.wait(_POLL)
    if daemon.process.poll() is None:
        daemon.kill()


def _close_input(daemon: Daemon) -> None:
    if daemon.process.stdin is not None:
        daemon.process.stdin.close()


def remove_abandoned(parent: Path, storage: PrivateStorage) -> None:
    """Remove private directories that no process uses any more (their command was killed), and what belongs to them
    in ``storage``."""
    for directory in sorted(parent.glob(f"{_DIRECTORY_PREFIX}*")):
        try:
            descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # just being made, or just being removed
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            if not kill_below([directory]):
                storage.remove(directory)
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def _make_private_directory(options: EmbeddedOptions) -> tuple[Path, int]:
    """A new directory (0700) below ``parent``, else below the system's temporary one; and its lock, held."""
    parent = options.parent
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned(parent, options.storage)
        directory = parent / f"{_DIRECTORY_PREFIX}{secrets.token_hex(4)}"
        directory.mkdir(mode=0o700)
    except OSError:
        try:
            directory = Path(tempfile.mkdtemp(prefix="emberkeep-"))
        except OSError as error:
            raise Fatal(
                f"cannot make a directory below {parent} or the temporary directory: {error.strerror}",
                hint="name another with -D emberkeep.state-dir=PATH",
            ) from error
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return directory, descriptor

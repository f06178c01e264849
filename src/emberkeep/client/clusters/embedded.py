"""The cluster that ``emberkeep run`` starts for one job: JobManager and task manager in one child process.

The child works in a private directory. It ends all its jobs and processes when its standard input closes, which also
happens when this process is killed. If the child itself is killed, it is started again with the same directory and the
same port, and takes over the running job.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from emberkeep.base.errors import Fatal
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon
from emberkeep.client.clusters.discovery import read_token
from emberkeep.client.clusters.leftovers import kill_below
from emberkeep.client.clusters.private_storage import PrivateStorage
from emberkeep.client.clusters.run_directories import (
    LOGS_KEPT,
    clear_dead_runs,
    keep_logs,
    make_run_directory,
    remove_run,
    savepoints_of,
)
from emberkeep.client.endpoint import Endpoint

MAX_RESTARTS = 5
HURRIED_TIMEOUT = 1.0
_POLL = 0.1
_KEEP_HINT = "run with --keep-logs to keep all logs"


@dataclass(frozen=True)
class EmbeddedOptions:
    """Settings for the start of the child.

    ``parent`` is the directory below which private directories are made. ``definitions`` are ``-D`` settings
    ("key=value"). ``stop_timeout``: seconds that the child gets to end its jobs and itself. ``storage`` is where the
    child keeps its data.
    """

    parent: Path
    config_file: Path | None
    definitions: Sequence[str]
    stop_timeout: float
    storage: PrivateStorage


class EmbeddedCluster:
    """The child process that runs a cluster for one command, and its directory.

    Call ``start``, then ``supervise``, which restarts the child, and ``stop`` at the end.
    """

    def __init__(self, options: EmbeddedOptions, notice: Callable[[str], None]) -> None:
        self._options = options
        self._notice = notice
        self._lock: int | None = None
        self._daemon: Daemon | None = None
        self._port = 0
        self._directory: Path | None = None

    @property
    def directory(self) -> Path | None:
        """The private directory; None before ``start`` has created it."""
        return self._directory

    async def start(self) -> Endpoint:
        """Start the child and wait until it serves. Raises Fatal; ``stop`` removes the directory even then."""
        for left in clear_dead_runs(self._options.parent, self._options.storage, time.time()):
            hours = f"{LOGS_KEPT / 3600:g} hours"
            self._notice(f"an earlier run, whose command was killed, left logs below {left}; they are kept for {hours}")
        self._directory, self._lock = make_run_directory(self._options.parent)
        return await self._start_child()

    async def supervise(self) -> None:
        """Restart the child whenever it ends on its own. Never returns.

        Raises Fatal after more than MAX_RESTARTS, or if the child cannot be started again.
        """
        restarts = 0
        while True:
            daemon = self._child()
            while daemon.process.poll() is None:  # noqa: ASYNC110 - the loop has no event for the end of a process
                await asyncio.sleep(_POLL)
            reason = daemon.died()
            _close_input(daemon)
            restarts += 1
            if restarts > MAX_RESTARTS:
                raise Fatal(f"{reason.message} (for the {restarts}th time)", hint=reason.hint)
            self._notice(f"the embedded cluster {reason.message.partition(' ')[2]}; restarting it, the job continues")
            await self._start_child()

    def stop(self, hurry: Callable[[], bool], *, with_logs: bool = False) -> Path | None:
        """Stop the child and all processes that it has started, and remove the directory. Blocks.

        With ``with_logs``, keep the logs and return their directory, else None. The child is killed after its stop
        timeout, or HURRIED_TIMEOUT after ``hurry`` returns True. Raises Fatal if a process does not end.
        """
        if self._daemon is not None:
            _end(self._daemon, self._options.stop_timeout, hurry)
        if self._directory is None:
            return None
        try:
            left = kill_below([self._directory])
            if left:
                raise Fatal(f"processes do not end: {', '.join(str(identity.pid) for identity in left)}")
            return self._remove(self._directory, with_logs=with_logs)
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _remove(self, directory: Path, *, with_logs: bool) -> Path | None:
        logs = keep_logs(directory) if with_logs and directory.exists() else None
        savepoints = savepoints_of(directory)
        remove_run(directory, self._options.storage, time.time())
        if savepoints is not None:
            self._notice(f"the savepoints of this run stay in {savepoints}")
        return logs

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
        # The child shares the lock, so the directory is in use while this process or the child is alive.
        self._daemon = start_daemon(command, stdin=subprocess.PIPE, pass_fds=(self._lock,))
        ready = await self._daemon.ready()
        self._port = urlsplit(ready.url).port or 0
        return Endpoint(ready.url, read_token(Path(ready.token_file)), "the embedded cluster", ca=ready.ca)

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

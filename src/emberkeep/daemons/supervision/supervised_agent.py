"""Keeps one task manager process running on a node, where a platform's scheduler has started us for that.

Its process may end by itself: the next one takes over the drivers and executors, which continue in between.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import FrameType

import psutil

from emberkeep.daemons.process_main import EXIT_FAILED, EXIT_OK, EXIT_USAGE

AGENT = [sys.executable, "-P", "-m", "emberkeep.daemons.taskmanager"]
_RESTARTS = 5  # of a task manager that ends soon after its start, before we give up
_SOON = 60.0  # seconds
_PAUSE = 1.0
_REPEAT = 5.0  # seconds between two signals to the task manager


class Supervisor:
    """Keeps one task manager process running until a signal or the JobManager ends it.

    ``signals``: what each signal to this process means to the task manager: SIGUSR1 to move its work elsewhere and end,
    SIGTERM to end at once.
    """

    def __init__(self, command: list[str], signals: dict[signal.Signals, signal.Signals]) -> None:
        self._command = command
        self._signals = signals
        self._process: subprocess.Popen[bytes] | None = None
        self._signal: signal.Signals | None = None  # the newest that the task manager got

    def run(self) -> int:
        """Return the exit code for the platform once the work here is over."""
        for number in self._signals:
            signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)  # the caller may have blocked them until now
        quick_ends = 0
        while True:
            began = time.monotonic()
            # Not in a session of its own: under some settings Slurm finds a job's processes by their session.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                preexec_fn=_ignore_drain,  # noqa: PLW1509 - no threads
            )
            code = self._wait(self._process)
            # A repeated SIGUSR1 may arrive when the task manager has done its work and is about to exit.
            if code in (EXIT_OK, -signal.SIGUSR1) or self._signal is signal.SIGTERM:
                return EXIT_OK
            quick_ends = quick_ends + 1 if time.monotonic() - began < _SOON else 0
            if code == EXIT_USAGE or quick_ends > _RESTARTS:
                return EXIT_FAILED
            sys.stderr.write(f"the task manager has ended with code {code}, starting it again\n")
            time.sleep(_PAUSE)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Return the exit code. Repeat the order to drain: a task manager that is still starting has ignored it."""
        while True:
            try:
                return process.wait(timeout=_REPEAT)
            except subprocess.TimeoutExpired:
                if self._signal is not None:
                    process.send_signal(self._signal)
                _reap_others(process.pid)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._signal is not signal.SIGTERM:
            self._signal = self._signals[signal.Signals(number)]
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(self._signals[signal.Signals(number)])


def _reap_others(agent: int) -> None:
    """Reap what an earlier task manager process has left, which became ours if we are a container's first process."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.pid != agent and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def _ignore_drain() -> None:
    """Let a new task manager ignore SIGUSR1, which would end it, until it handles the signal."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

"""Lets the task managers of a cluster start stub executors: Java costs seconds of processor time, and shows no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon

_PROGRAM = Path(__file__).with_name("executor.py")
_VARIABLE = "JAVA_HOME"
_RELEASE = 'JAVA_VERSION="17.0.0"\n'


def stub_java(directory: Path) -> Path:
    """Make a directory that task managers take for a Java home, and return it."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!{sys.executable} -IS\n{_PROGRAM.read_text(encoding='utf-8')}", encoding="utf-8")
    java.chmod(0o755)
    (directory / "release").write_text(_RELEASE, encoding="ascii")
    return directory


def starting(java_home: Path) -> Callable[[DaemonCommand], Daemon]:
    """Return what starts daemons, task managers with this Java home."""

    def start(command: DaemonCommand) -> Daemon:
        if command.module != "taskmanager":
            return start_daemon(command)
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = str(java_home)
        try:
            return start_daemon(command)
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before

    return start

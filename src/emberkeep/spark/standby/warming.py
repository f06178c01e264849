"""Starts the process that warms a standby JVM, and waits for its end. Starts the warm Python of an executor."""

from __future__ import annotations

import enum
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from emberkeep.base.files.private import make_private
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.executors import warm_python
from emberkeep.spark.jvm.gateway_connection import Connection

FOR_DRIVER, FOR_EXECUTOR = "driver", "executor"
_WARM_UP = "emberkeep.daemons.warm_up"  # by name: it serves a state gateway, which this package does not know
WARM_UP_SECONDS = 900.0  # at idle priority, a warm-up of 30 s may take much longer

_PID = re.compile(r"[0-9]{1,10}")
_SHOWN = 200  # characters
PYTHON_SECONDS = 300.0  # at idle priority, imports of 0.5 s may take much longer


class StateWarmUp(enum.Enum):
    """Which state gateway a warm-up uses: ``NONE`` without local recovery, else one like the cluster's."""

    NONE = "none"
    PLAIN = "plain"
    ENCRYPTED = "encrypted"


def warm(
    connection: Connection, directory: Path, environ: Mapping[str, str], state: StateWarmUp, *, for_driver: bool
) -> None:
    """Warm the JVM at this connection from a process of its own, with its files in ``directory``.

    ``for_driver``: False for an executor's JVM, which serves no Spark UI and writes no event log. Raises StandbyFailed,
    OSError.
    """
    kind = FOR_DRIVER if for_driver else FOR_EXECUTOR
    make_private(directory)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _WARM_UP, str(directory), kind, state.value],
            env={
                **environ,
                "PYSPARK_GATEWAY_PORT": str(connection.port),
                "PYSPARK_GATEWAY_SECRET": connection.auth_token,
                "PYSPARK_PYTHON": sys.executable,
            },
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=WARM_UP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StandbyFailed(f"the warm-up took longer than {WARM_UP_SECONDS:.0f} s") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if done.returncode != 0:
        raise StandbyFailed(f"the warm-up ended with exit code {done.returncode}: {_last_line(done.stderr)}")


def start_python(jvm: int, directory: Path, environ: Mapping[str, str]) -> int:
    """Start the warm Python of an executor's JVM, which listens in ``directory``. Return its pid.

    ``jvm``: the JVM's pid. Raises StandbyFailed, OSError.
    """
    # What PySpark and Spark set for the daemon, so that the interpreter begins as the daemon's would.
    set_later = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONUNBUFFERED": "YES"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", warm_python.MODULE, str(jvm)],
            env={**environ, **set_later},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PYTHON_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StandbyFailed(f"the imports of the Python workers took longer than {PYTHON_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise StandbyFailed(f"the warm Python ended with exit code {done.returncode}: {_last_line(done.stderr)}")
    last = _last_line(done.stdout)  # a site may let each interpreter print something as it starts
    if not _PID.fullmatch(last):
        raise StandbyFailed(f"the warm Python has not said its pid: {last[:_SHOWN]}")
    return int(last)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")

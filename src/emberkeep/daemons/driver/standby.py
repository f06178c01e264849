"""A driver process that is started before its job: ``python -m emberkeep.daemons.driver.standby <pid> …``.

It imports what drivers import, starts and warms a JVM, and waits for an order on its standard input. The order makes it
the driver of one attempt: it gets that driver's environment and directory, and continues as other drivers begin. It
ends if its task manager ends before that. If it is reserved for a job, it imports what the job's script imports before
that order comes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from emberkeep import __version__
from emberkeep.adapters.logging_setup import close_logs
from emberkeep.adapters.processes.table import MARKER_VARIABLE
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.processes.background import end_with_parent, outlive_parent
from emberkeep.base.processes.priority import raise_to_normal
from emberkeep.daemons.driver.attempt import run_attempt
from emberkeep.daemons.driver.standby_imports import import_for_job
from emberkeep.daemons.records.standby_messages import (
    Confirm,
    Import,
    Imported,
    Ready,
    Take,
    Taken,
    encode,
    receive,
)
from emberkeep.spark.java import JavaRuntime, find_java
from emberkeep.spark.jvm.class_archive import default_directory, find_class_archive
from emberkeep.spark.model import DriverSettings
from emberkeep.spark.standby.driver_jvm import StandbyJvm, start_standby_jvm
from emberkeep.spark.standby.native_calls import require_native_calls
from emberkeep.spark.standby.warming import StateWarmUp

# What scripts import: the modules of PySpark, and those that its DataFrames use for pandas and Python functions.
_IMPORTED = ("pyspark", "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.streaming", "pandas", "pyarrow")
EXIT_NOT_TAKEN = 0
EXIT_FAILED = 1


def main(arguments: list[str]) -> int:
    """Prepare a standby.

    ``arguments``: the pid of its task manager, its directory, its host, the heap in MiB, the value of a StateWarmUp,
    then Java options.

    Return the exit code of the attempt, or of a standby that no job has taken.
    """
    channel = _own_channel()
    end_with_parent(int(arguments[0]))
    try:
        jvm = _prepare(Path(arguments[1]), arguments[2], int(arguments[3]), StateWarmUp(arguments[4]), arguments[5:])
    except EmberkeepError as error:
        sys.stderr.write(f"emberkeep: no standby driver: {error.message}\n")
        return EXIT_FAILED
    with channel:
        channel.sendall(encode(Ready(release=__version__)))
        order, added = receive(channel), {}
        if isinstance(order, Import):
            try:
                added = _import(order, channel)
            except EmberkeepError as error:
                sys.stderr.write(f"emberkeep: no reserved standby: {error.message}\n")
                return EXIT_FAILED
            order = receive(channel)
        if not isinstance(order, Take):
            return EXIT_NOT_TAKEN  # the task manager has ended, or needs the memory
        outlive_parent()
        _become(order, added)
        raise_to_normal((pid for pid in (os.getpid(), jvm.pid) if pid is not None), compilers=False)
        channel.sendall(encode(Taken()))
        if not isinstance(receive(channel), Confirm):
            return EXIT_NOT_TAKEN  # the task manager has ended, or starts a cold driver
    return run_attempt(list(order.arguments), jvm)


def _own_channel() -> socket.socket:
    """Return the socket that is standard input, and make standard input what it is for other drivers: empty."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def _prepare(directory: Path, host: str, heap_mb: int, state: StateWarmUp, java_options: list[str]) -> StandbyJvm:
    """Import the modules, then start and warm a JVM. Raises EmberkeepError."""
    java = find_java(os.environ)
    require_native_calls(java)
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):  # pandas and pyarrow are optional
            importlib.import_module(name)
    archive = find_class_archive(java, default_directory(os.environ), os.environ)
    settings = standby_settings(directory, host, java, heap_mb, java_options)
    return start_standby_jvm(dataclasses.replace(settings, class_archive=archive), directory / "warm-up", state)


def standby_settings(
    directory: Path, host: str, java: JavaRuntime, heap_mb: int, java_options: Sequence[str]
) -> DriverSettings:
    """Return the settings of a JVM with exactly this heap and these options, whatever ``spark-defaults.conf`` says."""
    return DriverSettings(
        host=host,
        spark_conf={
            "spark.driver.memory": f"{heap_mb}m",
            "spark.driver.defaultJavaOptions": "",
            "spark.driver.extraJavaOptions": shlex.join(java_options),
        },
        scratch_dir=directory,
        checkpoint_root="",
        secret=None,
        java=java,
        app_name="standby",
        driver_memory_mb=heap_mb,
    )


def _import(order: Import, channel: socket.socket) -> dict[str, str]:
    """Import what a job's program imports, and report it. Return the variables that the imported packages have added.

    Raises Fatal, OSError.
    """
    before = dict(os.environ)
    imported = import_for_job(order.script, order.module, [Path(place) for place in order.places])
    added = {name: value for name, value in os.environ.items() if name not in before}
    channel.sendall(encode(Imported(packages=imported)))
    return added


def _become(order: Take, added: Mapping[str, str]) -> None:
    """Take over the environment, directory and command of a job's driver. The marker of this process stays.

    ``added``: variables that imported packages have set.
    """
    marker = os.environ[MARKER_VARIABLE]
    os.environ.clear()
    os.environ.update({**added, **order.environ, MARKER_VARIABLE: marker})
    os.chdir(order.directory)
    sys.orig_argv[:] = [sys.executable, "-P", "-m", "emberkeep.daemons.driver", *order.arguments]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    close_logs()
    os._exit(code)

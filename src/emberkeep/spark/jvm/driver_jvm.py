"""Start the driver's JVM, connect PySpark to it, and end it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emberkeep.base.files.private import make_private
from emberkeep.base.processes.process_identity import read_stat
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import JvmStartFailed
from emberkeep.spark.jvm.driver_command import (
    JvmPlan,
    encode_properties,
    jvm_command,
    properties_file,
)
from emberkeep.spark.jvm.gateway_connection import CONNECTION_VARIABLE, Connection, read_connection
from emberkeep.spark.jvm.state_gateway_conf import process_environment
from emberkeep.spark.model import DriverSettings, JvmExit

_POLL_SECONDS = 0.01
_ENDING_SECONDS = 30.0  # releasing a large heap takes time
# A Ctrl-C for the script must not end the JVM: a signal that the shell ignores stays ignored across exec.
_IGNORE_INTERRUPT = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]


class DriverJvm:
    """The driver's JVM, and the py4j gateway to it."""

    def __init__(self, process: subprocess.Popen[bytes], gateway: Any) -> None:
        self._process = process
        self._stopping = False
        self.gateway = gateway

    @property
    def pid(self) -> int:
        return self._process.pid

    def died(self) -> JvmExit | None:
        """Return how the JVM ended without ``stop``; None while it runs or after ``stop``.

        A killed process closes its connections, which the script notices, before its exit code is available. If the
        process is ending, wait for the code: usually a moment, at most 30 s.
        """
        stat = read_stat(self._process.pid)
        if stat is not None and stat.is_ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDING_SECONDS)
        code = self._process.poll()
        if code is None or self._stopping:
            return None
        return JvmExit(None, -code) if code < 0 else JvmExit(code, None)

    def kill(self) -> None:
        """Kill the JVM; calls that wait for it fail."""
        self._process.kill()

    def stop(self, deadline_seconds: float) -> None:
        """End the JVM by closing its stdin, which is Spark's own signal to exit; SIGKILL it after the deadline."""
        self._stopping = True
        # py4j's finalizer thread must not report garbage objects to a JVM that is ending.
        self.gateway._gateway_client.is_connected = False
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(deadline_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_jvm(plan: JvmPlan, settings: DriverSettings, own_options: Sequence[str] = ()) -> DriverJvm:
    """Start the JVM and connect to it. ``own_options``: see ``jvm_command``.

    Raises JvmStartFailed (the message says how the JVM ended), OSError (scratch directory).
    """
    make_scratch(settings)
    properties = properties_file(settings)
    properties.unlink(missing_ok=True)
    descriptor = os.open(properties, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(encode_properties(plan.conf))
    command = jvm_command(plan, settings, own_options)
    connection_directory = Path(tempfile.mkdtemp(dir=settings.scratch_dir))
    connection_file = connection_directory / "gateway"
    process = subprocess.Popen(
        [*_IGNORE_INTERRUPT, *command],
        stdin=subprocess.PIPE,
        env={**jvm_environment(os.environ, plan, settings), CONNECTION_VARIABLE: str(connection_file)},
    )
    try:
        connection = _await_gateway(process, connection_file, command)
        return DriverJvm(process, _connect(connection, process))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        shutil.rmtree(connection_directory, ignore_errors=True)


def make_scratch(settings: DriverSettings) -> None:
    """Make the directories that a JVM with these settings uses. Raises OSError."""
    for name in ("tmp", "local"):
        make_private(settings.scratch_dir / name)


def jvm_environment(environ: Mapping[str, str], plan: JvmPlan, settings: DriverSettings) -> dict[str, str]:
    """Return the environment of a driver's JVM. ``environ``: the driver's own."""
    home = spark_home(environ)
    libraries: dict[str, str] = {}
    if plan.shape.libraries:
        inherited = environ.get("LD_LIBRARY_PATH")
        libraries["LD_LIBRARY_PATH"] = f"{inherited}:{plan.shape.libraries}" if inherited else plan.shape.libraries
    return {
        **process_environment(environ),
        **libraries,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": environ.get("SPARK_CONF_DIR") or str(home / "conf"),
        "SPARK_LOCAL_DIRS": str(settings.scratch_dir / "local"),
        "SPARK_CONNECT_MODE": "0",
        # Python workers that this JVM starts run in the job's working directory, and must not import from it.
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": environ.get("PYTHONHASHSEED", "0"),
        # PYSPARK_PYTHON may be a path that exists on executors only.
        "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
        # No setting has the page's address: it comes from this variable. The links have settings of their own.
        "SPARK_LOCAL_IP": plan.shape.page,
        "SPARK_PUBLIC_DNS": plan.shape.page,
    }


def _await_gateway(process: subprocess.Popen[bytes], file: Path, command: list[str]) -> Connection:
    """Return how to connect to the gateway. Wait, like PySpark, while the JVM runs: it may be downloading packages."""
    while not file.exists():
        code = process.poll()
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise JvmStartFailed(
                f"the driver's JVM {how} before Spark had started (started as {shlex.join(command[:1])})",
                hint="see the JVM's messages above; a spark.driver setting or --packages may be wrong",
            )
        time.sleep(_POLL_SECONDS)
    return read_connection(file)


def _connect(connection: Connection, process: subprocess.Popen[bytes]) -> Any:
    """Connect through PySpark, as it connects to a JVM that another process has started."""
    from pyspark import java_gateway

    original = _original_launch_gateway or java_gateway.launch_gateway
    names = {"PYSPARK_GATEWAY_PORT": str(connection.port), "PYSPARK_GATEWAY_SECRET": connection.auth_token}
    os.environ.update(names)
    try:
        gateway = original()
    finally:
        for name in names:
            os.environ.pop(name, None)
    gateway.proc = process
    return gateway


_original_launch_gateway: Any = None


def replace_launch_gateway(replacement: Any) -> None:
    """Replace PySpark's launch of a JVM with ``replacement(conf)``, wherever PySpark looks it up."""
    global _original_launch_gateway  # noqa: PLW0603 - PySpark's function is one per process too
    from pyspark import java_gateway
    from pyspark.core import context

    if _original_launch_gateway is None:
        _original_launch_gateway = java_gateway.launch_gateway
    java_gateway.launch_gateway = replacement
    context.launch_gateway = replacement  # type: ignore[attr-defined]

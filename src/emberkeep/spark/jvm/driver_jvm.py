"""Start the driver's JVM with spark-submit's semantics.

PySpark starts `bin/spark-submit`, whose shell script first runs a JVM only to build the command of the real one. This
module builds the same command in Python, from the same inputs (configuration, spark-defaults.conf, environment).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberkeep.base.process_identity import read_stat
from emberkeep.spark.distribution import class_path, spark_home
from emberkeep.spark.errors import InvalidSparkConfiguration, JvmStartFailed
from emberkeep.spark.java import jvm_open_options
from emberkeep.spark.jvm.configuration import is_true, memory_mb, split_options, with_defaults
from emberkeep.spark.jvm.executor_command import archive_options
from emberkeep.spark.jvm.spark_ui import has_own_filter
from emberkeep.spark.jvm.state_gateway_conf import process_environment
from emberkeep.spark.model import DriverSettings, JvmExit

# A cluster address for SparkSubmit: the embedded Master's real address is known only once the JVM runs.
PLACEHOLDER_MASTER = "spark://emberkeep:0"
LOG_CONFIGURATION = Path(__file__).with_name("log4j2-driver.properties")
_LOOPBACK = "127.0.0.1"
_INCUBATOR = "--add-modules=jdk.incubator.vector"
_POLL_SECONDS = 0.01
_ENDING_SECONDS = 30.0  # releasing a large heap takes time
_DEFAULTS_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?(.*)")
# A Ctrl-C for the script must not end the JVM: a signal that the shell ignores stays ignored across exec.
_IGNORE_INTERRUPT = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]


@dataclass(frozen=True)
class SubmitArguments:
    """The script's ``PYSPARK_SUBMIT_ARGS``, parsed. ``conf``: settings. ``rest``: options passed on unchanged."""

    conf: Mapping[str, str]
    rest: tuple[str, ...]


def split_submit_arguments(text: str) -> SubmitArguments:
    """Split spark-submit options: ``--conf``, ``--driver-memory``, ``--name``, ``--master`` become settings.

    Raises InvalidSparkConfiguration for an unclosed quote, a missing value or ``--properties-file``.
    """
    named = {"--driver-memory": "spark.driver.memory", "--name": "spark.app.name", "--master": "spark.master"}
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise InvalidSparkConfiguration(f"PYSPARK_SUBMIT_ARGS={text!r}: {error}", hint="close the quote") from error
    conf: dict[str, str] = {}
    rest: list[str] = []
    for word in words:
        option, equals, inline = word.partition("=")
        if option in {"--conf", "-c", "--properties-file", *named}:
            value = inline if equals else next(words, None)
            if option == "--properties-file" or value is None:
                raise InvalidSparkConfiguration(
                    f"PYSPARK_SUBMIT_ARGS: {option} cannot be used in this form", hint="use --conf key=value"
                )
            if option in named:
                conf[named[option]] = value
            else:
                key, _, setting = value.partition("=")
                conf[key] = setting
        elif word != "pyspark-shell":
            rest.append(word)
    return SubmitArguments(conf, tuple(rest))


def launch_configuration(
    code: Mapping[str, str], arguments: SubmitArguments, settings: DriverSettings, file: Mapping[str, str]
) -> dict[str, str]:
    """Return the JVM's settings, beyond those in ``spark-defaults.conf`` (``file``), which the JVM itself reads.

    Each of these sources overrides those before it: Emberkeep's defaults, ``file``, ``--conf``,
    ``PYSPARK_SUBMIT_ARGS``, the script's code.
    """
    chosen = {**settings.spark_conf, **arguments.conf, **code}
    chosen.pop("spark.master", None)
    return with_defaults(chosen, file, settings)


def read_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in ``spark-defaults.conf`` of ``SPARK_CONF_DIR`` or Spark's home; empty without a file."""
    directory = Path(environ.get("SPARK_CONF_DIR") or spark_home(environ) / "conf")
    try:
        text = (directory / "spark-defaults.conf").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    pairs = (_DEFAULTS_LINE.match(line) for line in text.splitlines())
    return {pair.group(1): pair.group(2).strip() for pair in pairs if pair is not None}


def jvm_command(
    conf: Mapping[str, str], arguments: SubmitArguments, settings: DriverSettings, environ: Mapping[str, str]
) -> list[str]:
    """Return the JVM's command line.

    The JVM reads Spark's settings from ``properties_file``: process lists show command lines, and settings contain
    secrets. Only the settings that the JVM needs to start are on the line: heap size, Java options and class path.
    """
    effective = {**read_defaults(environ), **conf}
    options: list[str] = []
    for key in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        options += split_options(key, effective.get(key, ""))
    # The incubator module warns on stderr at each start, and speeds up only linear algebra in the driver.
    modules = [option for option in jvm_open_options() if option != _INCUBATOR]
    if not any(option.startswith(("-Dlog4j2.configurationFile=", "-Dlog4j.configurationFile=")) for option in options):
        own = Path(environ.get("SPARK_CONF_DIR") or spark_home(environ) / "conf") / "log4j2.properties"
        options.append(f"-Dlog4j2.configurationFile={own if own.exists() else LOG_CONFIGURATION}")
    return [
        str(settings.java.executable),
        "-cp",
        _class_path(effective, settings, environ),
        f"-Xmx{_heap_mb(effective, settings)}m",
        *modules,
        *archive_options(settings.class_archive),
        f"-Djava.io.tmpdir={settings.scratch_dir / 'tmp'}",
        "-XX:-UsePerfData",  # its file would be in the system's temporary directory, and remain after a SIGKILL
        *options,
        "-Dderby.connection.requireAuthentication=false",
        "org.apache.spark.deploy.SparkSubmit",
        *arguments.rest,
        "--master",
        PLACEHOLDER_MASTER,
        "--properties-file",
        str(properties_file(settings)),
        "--load-spark-defaults",
        "pyspark-shell",
    ]


def _heap_mb(effective: Mapping[str, str], settings: DriverSettings) -> int:
    memory = effective.get("spark.driver.memory")
    return settings.driver_memory_mb if memory is None else memory_mb("spark.driver.memory", memory)


def properties_file(settings: DriverSettings) -> Path:
    """Return the path of the file with the JVM's settings, which is written before the JVM starts."""
    return settings.scratch_dir / "driver.properties"


def _class_path(effective: Mapping[str, str], settings: DriverSettings, environ: Mapping[str, str]) -> str:
    return class_path(
        environ,
        effective.get("spark.driver.extraClassPath", ""),
        settings.job_files.jars,
        jars_first=is_true(effective, "spark.driver.userClassPathFirst"),
    )


def encode_properties(conf: Mapping[str, str]) -> str:
    """Encode settings in Java's properties notation; escape all but ASCII letters, digits and ``./-_``."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in conf.items())


def _escape(text: str) -> str:
    units = struct.unpack(f">{len(data) // 2}H", data) if (data := text.encode("utf-16-be", "surrogatepass")) else ()
    return "".join(
        chr(unit) if chr(unit).isascii() and (chr(unit).isalnum() or chr(unit) in "./-_") else f"\\u{unit:04x}"
        for unit in units
    )


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


def start_jvm(code: Mapping[str, str], settings: DriverSettings) -> DriverJvm:
    """Start the JVM and connect to it. ``code``: settings that the script has made before the first SparkContext.

    Raises JvmStartFailed (the message says how the JVM ended), InvalidSparkConfiguration, OSError (scratch directory).
    """
    environ = dict(os.environ)
    arguments = split_submit_arguments(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    defaults_file = read_defaults(environ)
    conf = launch_configuration(code, arguments, settings, defaults_file)
    (settings.scratch_dir / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    (settings.scratch_dir / "local").mkdir(mode=0o700, parents=True, exist_ok=True)
    properties = properties_file(settings)
    properties.unlink(missing_ok=True)
    descriptor = os.open(properties, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(encode_properties(conf))
    command = jvm_command(conf, arguments, settings, environ)
    connection_directory = Path(tempfile.mkdtemp(dir=settings.scratch_dir))
    connection_file = connection_directory / "gateway"
    page = ui_address({**defaults_file, **conf}, settings)
    process = subprocess.Popen(
        [*_IGNORE_INTERRUPT, *command],
        stdin=subprocess.PIPE,
        env={
            **_environment(environ, settings, connection_file),
            # No setting has the page's address: it comes from this variable. The links have settings of their own.
            "SPARK_LOCAL_IP": page,
            "SPARK_PUBLIC_DNS": page,
        },
    )
    try:
        port, secret = _await_gateway(process, connection_file, command)
        return DriverJvm(process, _connect(port, secret, process))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        shutil.rmtree(connection_directory, ignore_errors=True)


def _environment(environ: Mapping[str, str], settings: DriverSettings, connection_file: Path) -> dict[str, str]:
    home = spark_home(environ)
    return {
        **process_environment(environ),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": environ.get("SPARK_CONF_DIR") or str(home / "conf"),
        "SPARK_LOCAL_DIRS": str(settings.scratch_dir / "local"),
        "SPARK_CONNECT_MODE": "0",
        # Python workers that this JVM starts run in the job's working directory, and must not import from it.
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": environ.get("PYTHONHASHSEED", "0"),
        # PYSPARK_PYTHON may be a path that exists on executors only.
        "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
    }


def ui_address(conf: Mapping[str, str], settings: DriverSettings) -> str:
    """Return the address on which the Spark UI listens if the user turns it on.

    It is open to other machines only if the user has given it a filter of their own.
    """
    return settings.host if has_own_filter(conf) else _LOOPBACK


def _await_gateway(process: subprocess.Popen[bytes], file: Path, command: list[str]) -> tuple[int, str]:
    """Return the gateway's port and secret. Wait, like PySpark, while the JVM runs: it may be downloading packages."""
    while not file.exists():
        code = process.poll()
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise JvmStartFailed(
                f"the driver's JVM {how} before Spark had started (started as {shlex.join(command[:1])})",
                hint="see the JVM's messages above; a spark.driver setting or --packages may be wrong",
            )
        time.sleep(_POLL_SECONDS)
    # Spark writes the file under another name and renames it, so it is complete as soon as it exists.
    data = file.read_bytes()
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()


def _connect(port: int, secret: str, process: subprocess.Popen[bytes]) -> Any:
    """Connect through PySpark, as it connects to a JVM that another process has started."""
    from pyspark import java_gateway

    original = _original_launch_gateway or java_gateway.launch_gateway
    names = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
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

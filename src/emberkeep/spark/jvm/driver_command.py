"""The command line and the settings of the driver's JVM, with spark-submit's semantics.

PySpark starts `bin/spark-submit`, whose shell script first runs a JVM only to build the command of the real one. This
module builds the same command in Python, from the same inputs (configuration, spark-defaults.conf, environment).
"""

from __future__ import annotations

import shlex
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.configuration.java_properties import parse_properties
from emberkeep.spark.distribution import class_path, spark_home
from emberkeep.spark.errors import InvalidSparkConfiguration, InvalidSparkDefaults
from emberkeep.spark.java import jvm_open_options
from emberkeep.spark.jvm.configuration import is_true, memory_mb, split_options, with_defaults
from emberkeep.spark.jvm.executor_command import archive_options
from emberkeep.spark.jvm.spark_ui import has_own_filter
from emberkeep.spark.model import DriverSettings

# A cluster address for SparkSubmit: the embedded Master's real address is known only once the JVM runs.
PLACEHOLDER_MASTER = "spark://emberkeep:0"
MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
LOG_CONFIGURATION = Path(__file__).with_name("log4j2-driver.properties")
_LOOPBACK = "127.0.0.1"
_INCUBATOR = "--add-modules=jdk.incubator.vector"
# SparkSubmit fetches files, logs in, or loads classes for these before any SparkContext exists. A JVM reads the last
# ones once, when it runs its first query.
_SUBMITTED = (
    *("spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.kerberos.", "spark.repl."),
    *(f"spark.sql.{name}.maxThreadThreshold" for name in ("broadcastExchange", "resultQueryStage", "shuffleExchange")),
    "spark.sql.codegen.cache.maxEntries",
)
# Options that are the same as settings. The JVM needs some of these settings before it can read options.
_NAMED = {
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--name": "spark.app.name",
    "--master": "spark.master",
}


@dataclass(frozen=True)
class SubmitArguments:
    """The script's ``PYSPARK_SUBMIT_ARGS``, parsed. ``conf``: settings. ``rest``: options passed on unchanged."""

    conf: Mapping[str, str]
    rest: tuple[str, ...]


def split_submit_arguments(text: str) -> SubmitArguments:
    """Split spark-submit options: ``--conf`` and those in ``_NAMED`` become settings.

    Raises InvalidSparkConfiguration for an unclosed quote, a missing value or ``--properties-file``.
    """
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise InvalidSparkConfiguration(f"PYSPARK_SUBMIT_ARGS={text!r}: {error}", hint="close the quote") from error
    conf: dict[str, str] = {}
    rest: list[str] = []
    for word in words:
        option, equals, inline = word.partition("=")
        if option in {"--conf", "-c", "--properties-file", *_NAMED}:
            value = inline if equals else next(words, None)
            if option == "--properties-file" or value is None:
                raise InvalidSparkConfiguration(
                    f"PYSPARK_SUBMIT_ARGS: {option} cannot be used in this form", hint="use --conf key=value"
                )
            if option in _NAMED:
                conf[_NAMED[option]] = value
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
    """Return the settings in ``spark-defaults.conf`` of ``SPARK_CONF_DIR`` or Spark's home; empty without a file.

    Raises InvalidSparkDefaults.
    """
    directory = Path(environ.get("SPARK_CONF_DIR") or spark_home(environ) / "conf")
    try:
        text = (directory / "spark-defaults.conf").read_text("utf-8", "replace")  # as Spark does
    except (FileNotFoundError, NotADirectoryError):
        return {}
    try:
        return parse_properties(text)
    except ValueError as error:
        raise InvalidSparkDefaults(f"{directory / 'spark-defaults.conf'}: {error}", hint="correct it") from None


@dataclass(frozen=True)
class JvmShape:
    """What can no longer change once a JVM runs. A standby JVM fits a job if both have the same shape.

    - ``options``: Java options that the configuration asks for.
    - ``class_path``: without the job's own jars if these come last.
    - ``arguments``: further arguments of SparkSubmit, such as ``--packages``.
    - ``submitted``: settings that are read until the script's first query, and not after it.
    - ``page``: address of the Spark UI.
    - ``libraries``: folders with native libraries, from ``spark.driver.extraLibraryPath``.
    """

    java: Path
    heap_mb: int
    options: tuple[str, ...]
    class_path: str
    arguments: tuple[str, ...]
    submitted: Mapping[str, str]
    page: str
    libraries: str

    def differences(self, other: JvmShape) -> tuple[str, ...]:
        """Return what differs from another shape, in words."""
        words = {
            "another Java": self.java != other.java,
            f"a heap of {other.heap_mb} MiB": self.heap_mb != other.heap_mb,
            "other Java options": self.options != other.options,
            "another class path": self.class_path != other.class_path,
            "arguments of spark-submit": self.arguments != other.arguments,
            "settings that a JVM reads once": self.submitted != other.submitted,
            "another address of the Spark UI": self.page != other.page,
            "other native libraries": self.libraries != other.libraries,
        }
        return tuple(word for word, differs in words.items() if differs)


@dataclass(frozen=True)
class JvmPlan:
    """How a job's JVM starts. ``conf``: its settings beyond ``defaults``, those in ``spark-defaults.conf``.

    ``jars``: the job's own jars if they are last on the class path.
    """

    shape: JvmShape
    conf: Mapping[str, str]
    defaults: Mapping[str, str]
    jars: tuple[Path, ...]


def plan_jvm(code: Mapping[str, str], settings: DriverSettings, environ: Mapping[str, str]) -> JvmPlan:
    """Return how to start the JVM of a driver. ``code``: settings that the script has made.

    Raises InvalidSparkConfiguration.
    """
    arguments = split_submit_arguments(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    defaults = read_defaults(environ)
    conf = launch_configuration(code, arguments, settings, defaults)
    effective = {**defaults, **conf}
    jars_first = is_true(effective, "spark.driver.userClassPathFirst")
    jars = settings.job_files.jars
    extra = effective.get("spark.driver.extraClassPath", "")
    shape = JvmShape(
        java=settings.java.executable,
        heap_mb=_heap_mb(effective, settings),
        options=_java_options(effective, environ),
        class_path=class_path(environ, extra, jars if jars_first else (), jars_first=jars_first),
        arguments=arguments.rest,
        submitted={key: value for key, value in effective.items() if key.startswith(_SUBMITTED)},
        page=ui_address(effective, settings),
        libraries=effective.get("spark.driver.extraLibraryPath", ""),
    )
    return JvmPlan(shape, conf, defaults, () if jars_first else jars)


def jvm_command(plan: JvmPlan, settings: DriverSettings, own_options: Sequence[str] = ()) -> list[str]:
    """Return the JVM's command line. ``own_options``: Java options that the configuration does not ask for.

    The JVM reads Spark's settings from ``properties_file``: process lists show command lines, and settings contain
    secrets. Only the settings that the JVM needs to start are on the line: heap size, Java options and class path.
    """
    shape = plan.shape
    # The incubator module warns on stderr at each start, and speeds up only linear algebra in the driver.
    modules = [option for option in jvm_open_options() if option != _INCUBATOR]
    return [
        str(shape.java),
        "-cp",
        ":".join((shape.class_path, *map(str, plan.jars))),
        f"-Xmx{shape.heap_mb}m",
        *modules,
        *archive_options(settings.class_archive),
        f"-Djava.io.tmpdir={settings.scratch_dir / 'tmp'}",
        "-XX:-UsePerfData",  # its file would be in the system's temporary directory, and remain after a SIGKILL
        *own_options,
        *shape.options,
        "-Dderby.connection.requireAuthentication=false",
        MAIN_CLASS,
        *shape.arguments,
        "--master",
        PLACEHOLDER_MASTER,
        "--properties-file",
        str(properties_file(settings)),
        "--load-spark-defaults",
        "pyspark-shell",
    ]


def _java_options(effective: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    options: list[str] = []
    for key in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        options += split_options(key, effective.get(key, ""))
    if not any(option.startswith(("-Dlog4j2.configurationFile=", "-Dlog4j.configurationFile=")) for option in options):
        own = Path(environ.get("SPARK_CONF_DIR") or spark_home(environ) / "conf") / "log4j2.properties"
        options.append(f"-Dlog4j2.configurationFile={own if own.exists() else LOG_CONFIGURATION}")
    return tuple(options)


def _heap_mb(effective: Mapping[str, str], settings: DriverSettings) -> int:
    memory = effective.get("spark.driver.memory")
    return settings.driver_memory_mb if memory is None else memory_mb("spark.driver.memory", memory)


def properties_file(settings: DriverSettings) -> Path:
    """Return the path of the file with the JVM's settings, which is written before the JVM starts."""
    return settings.scratch_dir / "driver.properties"


def encode_properties(conf: Mapping[str, str]) -> str:
    """Encode settings in Java's properties notation; escape all but ASCII letters, digits and ``./-_``."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in conf.items())


def _escape(text: str) -> str:
    units = struct.unpack(f">{len(data) // 2}H", data) if (data := text.encode("utf-16-be", "surrogatepass")) else ()
    return "".join(
        chr(unit) if chr(unit).isascii() and (chr(unit).isalnum() or chr(unit) in "./-_") else f"\\u{unit:04x}"
        for unit in units
    )


def ui_address(conf: Mapping[str, str], settings: DriverSettings) -> str:
    """Return the address on which the Spark UI listens if the user turns it on.

    It is open to other machines only if the user has set a filter for it.
    """
    return settings.bind_host or settings.host if has_own_filter(conf) else _LOOPBACK

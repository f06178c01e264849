"""The command line and environment of one executor process (Spark's CoarseGrainedExecutorBackend).

The process is started with ``work_dir`` as its working directory: the job's files lie there, as Spark would put them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.api.function_link import EXECUTOR_VARIABLE
from emberkeep.spark.distribution import class_path, spark_home
from emberkeep.spark.java import jvm_open_options
from emberkeep.spark.jvm.state_gateway_conf import process_environment

BACKEND_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
AUTH_SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # noqa: S105 - the variable's name, known to Spark
LOG_CONFIGURATION = Path(__file__).with_name("log4j2-executor.properties")
LOG_OPTION = "-Dlog4j2.configurationFile="

# Of the environment given, what must not leak into an executor from the process that starts it.
_NOT_INHERITED = frozenset(
    {"PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH"}
)


@dataclass(frozen=True)
class ExecutorLaunch:
    """All that an executor's command depends on.

    ``host`` is the node's address to bind and to advertise; ``environ`` the base environment plus what the
    application asks for; ``python`` the interpreter of the Python workers where the application names none;
    ``python_path`` goes before an inherited PYTHONPATH; ``temporary_dir`` is made for this process; ``jars`` are the
    job's own, ``jars_first`` lets them win over Spark's; ``class_archive`` is a class-data archive to start faster with
    (see ``class_archive.py``), or None.
    """

    driver_url: str
    executor_id: str
    host: str
    cores: int
    heap_mb: int
    app_id: str
    java: Path
    java_options: tuple[str, ...]
    extra_class_path: str
    python: str
    environ: Mapping[str, str]
    work_dir: Path
    local_dir: Path
    temporary_dir: Path
    auth_secret: str | None
    python_path: tuple[str, ...]
    jars: tuple[Path, ...] = ()
    jars_first: bool = False
    class_archive: Path | None = None


def executor_command(launch: ExecutorLaunch) -> tuple[list[str], dict[str, str]]:
    """Return (argv, environment), having made the directories it names.

    Raises OSError where they cannot be made and SparkInternalsMissing where Spark's jars are not found.
    """
    for directory in (launch.work_dir, launch.temporary_dir, launch.local_dir):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _argv(launch), _environment(launch)


def _argv(launch: ExecutorLaunch) -> list[str]:
    return [
        str(launch.java),
        "-cp",
        class_path(launch.environ, launch.extra_class_path, launch.jars, jars_first=launch.jars_first),
        f"-Xmx{launch.heap_mb}m",
        *jvm_open_options(),
        *archive_options(launch.class_archive),
        # A killed JVM leaves native libraries behind in its temporary directory, so each has its own; its performance
        # counters would lie in the system's one whatever is set here.
        f"-Djava.io.tmpdir={launch.temporary_dir}",
        "-XX:-UsePerfData",
        *_java_options(launch),
        BACKEND_CLASS,
        "--driver-url",
        launch.driver_url,
        "--executor-id",
        launch.executor_id,
        "--bind-address",
        launch.host,
        "--hostname",
        launch.host,
        "--cores",
        str(launch.cores),
        "--app-id",
        launch.app_id,
        "--resourceProfileId",
        "0",
    ]


def archive_options(archive: Path | None) -> list[str]:
    """JVM options that use a class-data archive. One that does not fit is ignored by the JVM, without a word."""
    if archive is None or not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds*=error"]


def _java_options(launch: ExecutorLaunch) -> list[str]:
    """The application's options with the placeholders that Spark documents, and what authentication needs."""
    options = [
        option.replace("{{APP_ID}}", launch.app_id).replace("{{EXECUTOR_ID}}", launch.executor_id)
        for option in launch.java_options
    ]
    if not any(option.startswith(("-Dlog4j2.configurationFile=", "-Dlog4j.configurationFile=")) for option in options):
        options.append(f"{LOG_OPTION}{LOG_CONFIGURATION}")
    if launch.auth_secret is not None and "-Dspark.authenticate=true" not in options:
        options.append("-Dspark.authenticate=true")
    return options


def _environment(launch: ExecutorLaunch) -> dict[str, str]:
    inherited = {name: value for name, value in launch.environ.items() if name not in _NOT_INHERITED}
    environment = process_environment(inherited)
    environment |= {
        EXECUTOR_VARIABLE: launch.executor_id,
        "SPARK_HOME": str(spark_home(launch.environ)),
        "SPARK_LOCAL_DIRS": str(launch.local_dir),
        "SPARK_LOCAL_IP": launch.host,
        "PYSPARK_PYTHON": launch.python,
        "TMPDIR": str(launch.temporary_dir),
    }
    python_path = [*launch.python_path, *filter(None, [launch.environ.get("PYTHONPATH", "")])]
    if python_path:
        environment["PYTHONPATH"] = ":".join(python_path)
    if launch.auth_secret is not None:
        environment[AUTH_SECRET_VARIABLE] = launch.auth_secret
    return environment

"""The command line and environment of one executor process (Spark's CoarseGrainedExecutorBackend).

The process must be started in ``work_dir``, which contains the job's files where Spark would have put them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from emberkeep.api.function_link import EXECUTOR_VARIABLE
from emberkeep.base.configuration.hosts import in_brackets
from emberkeep.base.files.private import make_private
from emberkeep.spark.distribution import class_path, spark_home
from emberkeep.spark.executors.encrypting_python_daemon import MODULE as ENCRYPTING_PYTHON_DAEMON
from emberkeep.spark.executors.python_daemon import MODULE as PYTHON_DAEMON
from emberkeep.spark.files.job_files import folder_links
from emberkeep.spark.java import jvm_open_options
from emberkeep.spark.jvm.gateway_connection import CONNECTION_VARIABLE
from emberkeep.spark.jvm.link_security import FILE_ENCRYPTION
from emberkeep.spark.jvm.resources import resources_json
from emberkeep.spark.jvm.state_gateway_conf import process_environment

BACKEND_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
AUTH_SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # noqa: S105 - the variable's name, known to Spark
LOG_CONFIGURATION = Path(__file__).with_name("log4j2-executor.properties")
LOG_OPTION = "-Dlog4j2.configurationFile="

# Variables that must not leak into an executor from the process that starts it.
_NOT_INHERITED = frozenset(
    {"PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", CONNECTION_VARIABLE}
)


@dataclass(frozen=True)
class ExecutorLaunch:
    """All inputs of an executor's command.

    - ``host``: where other processes reach the executor.
    - ``bind_host``: the address that the executor binds; empty: ``host``.
    - ``environ``: base environment plus the variables that the application sets.
    - ``python``: interpreter of the Python workers, unless the application names another.
    - ``named_python``: interpreter of the Python workers as the application names it; "" if it names none.
    - ``import_folders``: folders with modules beside the script, from which the Python workers import. None stands for
      a folder that must not be used on this node.
    - ``temporary_dir``: temporary directory that only this process uses.
    - ``jars``: the job's own jars; with ``jars_first`` they precede Spark's.
    - ``resources``: addresses of custom resources that the executor has for itself, by name.
    - ``class_archive``: class-data archive for a faster start (see ``class_archive.py``), or None.
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
    import_folders: tuple[str | None, ...] = ()
    jars: tuple[Path, ...] = ()
    jars_first: bool = False
    class_archive: Path | None = None
    named_python: str = ""
    bind_host: str = ""
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def executor_command(launch: ExecutorLaunch) -> tuple[list[str], dict[str, str]]:
    """Make the launch's directories and its links to import folders, and return (argv, environment).

    Raises OSError if a directory cannot be made, SparkInternalsMissing if there are no Spark jars.
    """
    for directory in (launch.work_dir, launch.temporary_dir, launch.local_dir):
        make_private(directory)
    for name, folder in folder_links(launch.import_folders).items():
        link = launch.work_dir / name
        link.unlink(missing_ok=True)
        if folder.is_dir():
            link.symlink_to(folder)
    if launch.resources:
        _resources_file(launch).write_text(resources_json("spark.executor", launch.resources), "utf-8")
    return _argv(launch), executor_environment(launch)


def _argv(launch: ExecutorLaunch) -> list[str]:
    return [
        str(launch.java),
        "-cp",
        class_path(launch.environ, launch.extra_class_path, launch.jars, jars_first=launch.jars_first),
        f"-Xmx{launch.heap_mb}m",
        *jvm_open_options(),
        *archive_options(launch.class_archive),
        # A killed JVM leaves native libraries in its temporary directory, so each JVM has its own. Performance counters
        # are off, as the JVM would write them to the system's temporary directory in any case.
        f"-Djava.io.tmpdir={launch.temporary_dir}",
        "-XX:-UsePerfData",
        *backend_options(launch),
        BACKEND_CLASS,
        *backend_arguments(launch),
    ]


def backend_arguments(launch: ExecutorLaunch) -> list[str]:
    """Return the arguments of the backend's main class."""
    return [
        "--driver-url",
        launch.driver_url,
        "--executor-id",
        launch.executor_id,
        "--bind-address",
        launch.bind_host or launch.host,
        "--hostname",
        in_brackets(launch.host),
        "--cores",
        str(launch.cores),
        "--app-id",
        launch.app_id,
        "--resourceProfileId",
        "0",
        *(["--resourcesFile", str(_resources_file(launch))] if launch.resources else []),
    ]


def _resources_file(launch: ExecutorLaunch) -> Path:
    return launch.temporary_dir / "resources.json"


def archive_options(archive: Path | None) -> list[str]:
    """Return the JVM options for a class-data archive; none if there is no archive.

    The JVM silently ignores an archive that does not fit. By default it maps one at a random address: then it changes
    all addresses in it, which takes time, and leaves no page that JVMs could share. With the option, it uses the
    addresses that the archive was written for, if they are free.
    """
    if archive is None or not archive.exists():
        return []
    in_place = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
    return [
        f"-XX:SharedArchiveFile={archive}",
        "-Xshare:auto",
        "-XX:+VerifySharedSpaces",
        *in_place,
        "-Xlog:cds*=error",
    ]


def backend_options(launch: ExecutorLaunch) -> list[str]:
    """Return the application's JVM options, with Spark's placeholders filled in, plus logging and authentication."""
    options = [
        option.replace("{{APP_ID}}", launch.app_id).replace("{{EXECUTOR_ID}}", launch.executor_id)
        for option in launch.java_options
    ]
    if not any(option.startswith(("-Dlog4j2.configurationFile=", "-Dlog4j.configurationFile=")) for option in options):
        options.append(f"{LOG_OPTION}{LOG_CONFIGURATION}")
    if launch.auth_secret is not None and "-Dspark.authenticate=true" not in options:
        options.append("-Dspark.authenticate=true")
    if launch.named_python in {"", launch.python}:  # another interpreter may not have Emberkeep
        daemon = ENCRYPTING_PYTHON_DAEMON if f"-D{FILE_ENCRYPTION}=true" in options else PYTHON_DAEMON
        options.append(f"-Dspark.python.daemon.module={daemon}")  # settings of the driver override it
    return options


def executor_environment(launch: ExecutorLaunch) -> dict[str, str]:
    """Return the whole environment of an executor."""
    inherited = {name: value for name, value in launch.environ.items() if name not in _NOT_INHERITED}
    environment = process_environment(inherited)
    environment |= {
        EXECUTOR_VARIABLE: launch.executor_id,
        "SPARK_HOME": str(spark_home(launch.environ)),
        "SPARK_LOCAL_DIRS": str(launch.local_dir),
        "SPARK_LOCAL_IP": launch.bind_host or launch.host,
        "PYSPARK_PYTHON": launch.python,
        "TMPDIR": str(launch.temporary_dir),
    }
    if launch.auth_secret is not None:
        environment[AUTH_SECRET_VARIABLE] = launch.auth_secret
    return environment

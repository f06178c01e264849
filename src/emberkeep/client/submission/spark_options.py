"""spark-submit's options, merged into one Spark configuration, with notices about what is ignored.

Precedence is that of spark-submit: a dedicated option (``--executor-memory``) wins over ``--conf``, which wins over the
properties file, which wins over ``spark-defaults.conf``, which wins over the environment (``SPARK_EXECUTOR_MEMORY``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.configuration.java_properties import parse_properties
from emberkeep.base.errors import InvalidInput

_IGNORED_KEYS = {
    "spark.master": "an Emberkeep job always runs on its cluster",
    "spark.submit.deployMode": "the driver always runs on a task manager",
}


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Values as typed; None or empty if not given. File lists are comma-separated, as in spark-submit."""

    conf: tuple[str, ...] = ()
    properties_file: str | None = None
    load_spark_defaults: bool = False
    name: str | None = None
    py_files: str | None = None
    files: str | None = None
    archives: str | None = None
    jars: str | None = None
    packages: str | None = None
    exclude_packages: str | None = None
    repositories: str | None = None
    driver_memory: str | None = None
    driver_cores: str | None = None
    driver_java_options: str | None = None
    driver_class_path: str | None = None
    driver_library_path: str | None = None
    executor_memory: str | None = None
    executor_cores: str | None = None
    num_executors: str | None = None
    total_executor_cores: str | None = None
    master: str | None = None
    deploy_mode: str | None = None
    main_class: str | None = None
    supervise: bool = False
    queue: str | None = None


# Field of SparkOptions to the configuration key that it sets.
_KEYS = {
    "name": "spark.app.name",
    "py_files": "spark.submit.pyFiles",
    "files": "spark.files",
    "archives": "spark.archives",
    "jars": "spark.jars",
    "packages": "spark.jars.packages",
    "exclude_packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories",
    "driver_memory": "spark.driver.memory",
    "driver_cores": "spark.driver.cores",
    "driver_java_options": "spark.driver.extraJavaOptions",
    "driver_class_path": "spark.driver.extraClassPath",
    "driver_library_path": "spark.driver.extraLibraryPath",
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "num_executors": "spark.executor.instances",
    "total_executor_cores": "spark.cores.max",
    "master": "spark.master",
    "deploy_mode": "spark.submit.deployMode",
}

# Environment variable to the configuration key that it sets, as for spark-submit.
_VARIABLES = {
    "SPARK_DRIVER_MEMORY": "spark.driver.memory",
    "SPARK_EXECUTOR_MEMORY": "spark.executor.memory",
    "SPARK_EXECUTOR_CORES": "spark.executor.cores",
}


@dataclass(frozen=True)
class SparkConfiguration:
    """A merged configuration. All keys in ``values`` begin with "spark.". ``notices`` are single lines for the user."""

    values: dict[str, str]
    notices: tuple[str, ...]


def spark_configuration(options: SparkOptions, environ: Mapping[str, str]) -> SparkConfiguration:
    """Return the configuration of the job. Reads the properties files. Raises InvalidInput naming the option."""
    merged = merged_settings(options, environ)
    kept = {key: value for key, value in merged.items() if key.startswith("spark.") and key not in _IGNORED_KEYS}
    return SparkConfiguration(kept, tuple(_notices(options, merged)))


def merged_settings(options: SparkOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """Merge all sources, including keys that a job ignores. Reads the properties files. Raises InvalidInput."""
    merged = {key: environ[name] for name, key in _VARIABLES.items() if environ.get(name)}
    merged |= _files_settings(options, environ)
    for pair in options.conf:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidInput(
                f"--conf {pair or repr(pair)}: there is no '='",
                field="--conf",
                hint="for example --conf spark.sql.shuffle.partitions=8",
            )
        # A value may be a space, as in spark-submit. Where space is before "=", that after it is no more than that.
        merged[key.strip()] = value.strip() if key.rstrip() != key else value
    for name, key in _KEYS.items():
        value = getattr(options, name)
        if value is not None:
            merged[key] = value
    return merged


def _notices(options: SparkOptions, merged: Mapping[str, str]) -> list[str]:
    notices = []
    if options.supervise:
        notices.append("--supervise is ignored: restart-strategy.type controls the restart of lost drivers")
    if options.queue is not None:
        notices.append("--queue is ignored: jobs share the cluster's slots fairly; there are no queues")
    for key in sorted(merged):
        if not key.startswith("spark."):
            notices.append(f"ignoring {key}: not a Spark configuration key (they begin with `spark.`)")
        elif key in _IGNORED_KEYS:
            notices.append(f"ignoring {key}={merged[key]}: {_IGNORED_KEYS[key]}")
    return notices


def _files_settings(options: SparkOptions, environ: Mapping[str, str]) -> dict[str, str]:
    merged: dict[str, str] = {}
    if options.properties_file is None or options.load_spark_defaults:
        defaults = _defaults_file(environ)
        if defaults is not None:
            merged |= _read(defaults, "spark-defaults.conf")
    if options.properties_file is not None:
        merged |= _read(Path(options.properties_file), "--properties-file")
    return merged


def _defaults_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the client's own spark-defaults.conf, or None. Each driver reads the file of its own node."""
    directory = environ.get("SPARK_CONF_DIR")
    if not directory and environ.get("SPARK_HOME"):
        directory = str(Path(environ["SPARK_HOME"]) / "conf")
    path = Path(directory) / "spark-defaults.conf" if directory else None
    return path if path is not None and path.is_file() else None


def _read(path: Path, option: str) -> dict[str, str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInput(f"{option}: cannot read {path}: {reason}", field=option) from None
    try:
        return parse_properties(text)
    except ValueError as error:
        raise InvalidInput(f"{option}: {path}: {error}", field=option) from None

"""Merge the job's Spark configuration with the settings that the cluster requires. Pure: mappings in, values out.

Precedence is spark-submit's: settings in code override ``--conf``, which overrides spark-defaults.conf. All of them
override Emberkeep's defaults. The settings that a job on an Emberkeep cluster cannot choose override everything (see
``_required``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from emberkeep.base.configuration.hosts import in_brackets, join_host_port
from emberkeep.base.configuration.option_words import UnreadableWords, split_words
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.java import jvm_open_options
from emberkeep.spark.jvm.event_log import event_log_settings
from emberkeep.spark.jvm.link_security import (
    FILE_ENCRYPTION,
    SECRET_KEY,
    SSL_PREFIX,
    authentication,
    encryption,
    is_secret,
    password_variables,
)
from emberkeep.spark.jvm.resources import resource_amounts
from emberkeep.spark.jvm.spark_ui import FILTERS, access_settings
from emberkeep.spark.model import DriverSettings, SparkApplication

DEFAULT_EXECUTOR_CORES = 1
DEFAULT_EXECUTOR_HEAP_MB = 1024
MINIMUM_OVERHEAD = "384m"
OFF_HEAP_SWITCH = "spark.memory.offHeap.enabled"
DECOMMISSION_SWITCH = "spark.decommission.enabled"
EXECUTOR_CORES = "spark.executor.cores"
DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
SHUFFLE_TRACKING = "spark.dynamicAllocation.shuffleTracking.enabled"
SHUFFLE_SERVICE = "spark.shuffle.service.enabled"
_DECOMMISSION_SIGNAL = "spark.executor.decommission.signal"
OFF_HEAP_SIZE = "spark.memory.offHeap.size"
# Spark reads a 64-bit number, and Python refuses to read thousands of digits.
_MEMORY = re.compile(r"^\s*0*([0-9]{1,18})\s*(?:([kmgtp])b?|(b))?\s*$", re.IGNORECASE)
_BYTES = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
# An executor needs these before it can fetch the other settings from the driver; see SparkConf.isExecutorStartupConf.
_STARTUP_PREFIXES = ("spark.auth", "spark.rpc", "spark.network", "spark.port.", SSL_PREFIX, FILE_ENCRYPTION)


@dataclass(frozen=True)
class MergedConfiguration:
    """Settings for a new SparkContext. ``values`` override the existing ones. ``warnings``: lines for the user."""

    values: dict[str, str]
    warnings: tuple[str, ...]


def merge(present: Mapping[str, str], settings: DriverSettings, master_url: str) -> MergedConfiguration:
    """Decide the settings to override in the configuration of a new SparkContext.

    ``present``: all settings from code, ``--conf`` and defaults, without the ``spark.master`` given at JVM start.
    """
    warnings = []
    master = present.get("spark.master")
    if master is not None and master != master_url:
        warnings.append(f"spark.master={master} is overridden: this job runs on the executors of its Emberkeep cluster")
    dynamic = _dynamic_allocation(present)
    if dynamic and is_true(present, SHUFFLE_SERVICE):
        warnings.append(
            f"{SHUFFLE_SERVICE}=true is overridden with false: there is no external shuffle service; dynamic "
            f"allocation keeps executors with shuffle files ({SHUFFLE_TRACKING}), or lets them hand the files over"
        )
    lineage = {} if settings.lineage is None else settings.lineage.settings(present)
    return MergedConfiguration(lineage | dynamic | _required(settings, master_url), tuple(warnings))


def _dynamic_allocation(present: Mapping[str, str]) -> dict[str, str]:
    """Return what dynamic allocation needs here; nothing if it is off."""
    if not is_true(present, DYNAMIC_ALLOCATION):
        return {}
    # Without a number of cores, Spark warns that it cannot tell how many executors it needs.
    defaults = {SHUFFLE_TRACKING: "true", EXECUTOR_CORES: str(DEFAULT_EXECUTOR_CORES)}
    return {SHUFFLE_SERVICE: "false"} | {key: value for key, value in defaults.items() if key not in present}


def with_defaults(chosen: Mapping[str, str], file: Mapping[str, str], settings: DriverSettings) -> dict[str, str]:
    """Return the settings that the JVM gets at its start: ``chosen``, and Emberkeep's defaults for the others.

    ``file``: the settings in ``spark-defaults.conf``. The JVM itself reads them, below those that are returned, so
    defaults are left out where the file has settings.
    """
    users = {**file, **chosen}
    links = {} if settings.secret is None or not settings.encrypts else encryption(users)
    page = {} if settings.ui_key is None or users.get(FILTERS) else access_settings(settings.ui_key)
    log = event_log_settings(settings.event_log)
    added = {key: value for key, value in (_defaults(settings) | links | page | log).items() if key not in users}
    return {**added, **chosen}


def _defaults(settings: DriverSettings) -> dict[str, str]:
    return {
        "spark.ui.enabled": "true",  # see ``spark_ui`` for who may open it
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",  # Spark's page does not authenticate its users
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.ui.showConsoleProgress": "false",  # spark-submit turns it on for interactive shells only
        "spark.app.name": settings.app_name,
        # An executor that must leave its node hands over its blocks, then ends. By default, Spark checks for remaining
        # blocks only every 30 s, and notices new executors only after a minute.
        DECOMMISSION_SWITCH: "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.replicationReattemptInterval": "2s",
        "spark.storage.cachedPeersTtl": "2000",
    }


def _required(settings: DriverSettings, master_url: str) -> dict[str, str]:
    resources = {"spark.driver.resourcesFile": settings.resources_file} if settings.resources_file else {}
    return (
        authentication(settings.secret)
        | resources
        | {
            "spark.master": master_url,
            "spark.submit.deployMode": "client",
            "spark.driver.host": in_brackets(settings.host),
            "spark.driver.bindAddress": settings.bind_host or settings.host,
        }
    )


def master_configuration(merged: Mapping[str, str]) -> dict[str, str]:
    """Return the embedded Master's settings.

    They are the connection settings and their secrets from ``merged``, with the Master's REST server and the web UI's
    kill action turned off.
    """
    connection = {key: value for key, value in merged.items() if _is_startup(key) or is_secret(key)}
    return connection | {"spark.master.rest.enabled": "false", "spark.ui.killEnabled": "false"}


def is_true(conf: Mapping[str, str], key: str) -> bool:
    """True if a setting that is off by default is on."""
    return conf.get(key, "").strip().lower() == "true"


def application(
    merged: Mapping[str, str], app_id: str, driver_port: int, settings: DriverSettings, spark_user: str, python: str
) -> SparkApplication:
    """Return the settings with which the application's executors start. Raises InvalidSparkConfiguration."""
    cores = _count(merged, EXECUTOR_CORES, DEFAULT_EXECUTOR_CORES)
    heap = merged.get("spark.executor.memory")
    heap_mb = DEFAULT_EXECUTOR_HEAP_MB if heap is None else memory_mb("spark.executor.memory", heap)
    environment = {
        key.removeprefix("spark.executorEnv."): value
        for key, value in merged.items()
        if key.startswith("spark.executorEnv.")
    }
    environment |= {"SPARK_USER": spark_user, **password_variables(merged)}
    libraries = merged.get("spark.executor.extraLibraryPath")
    if libraries:
        inherited = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{libraries}:{inherited}" if inherited else libraries
    return SparkApplication(
        app_id=app_id,
        driver_url=f"spark://CoarseGrainedScheduler@{join_host_port(settings.host, driver_port)}",
        executor_cores=cores,
        executor_heap_mb=heap_mb,
        executor_overhead_mb=executor_overhead_mb(merged, heap_mb),
        executor_java_options=executor_java_options(merged),
        extra_class_path=merged.get("spark.executor.extraClassPath", ""),
        executor_env=environment,
        auth_secret=merged.get(SECRET_KEY) if merged.get("spark.authenticate") == "true" else None,
        python=python,
        user_class_path_first=is_true(merged, "spark.executor.userClassPathFirst"),
        executor_instances=_instances(merged, cores),
        executor_cores_set=EXECUTOR_CORES in merged,
        executor_heap_set=heap is not None,
        executor_resources=resource_amounts(merged, "spark.executor"),
        decommissions=is_true(merged, DECOMMISSION_SWITCH) and merged.get(_DECOMMISSION_SIGNAL, "PWR") == "PWR",
    )


def executor_overhead_mb(merged: Mapping[str, str], heap_mb: int) -> int:
    """Return an executor's memory beyond its heap, in MiB. Raises InvalidSparkConfiguration."""
    key, least_key = "spark.executor.memoryOverhead", "spark.executor.minMemoryOverhead"
    share = merged.get("spark.executor.memoryOverheadFactor", "0.1")
    try:
        default = max(_mebibytes(least_key, merged.get(least_key, MINIMUM_OVERHEAD), "m"), int(heap_mb * float(share)))
    except (ValueError, OverflowError):
        raise InvalidSparkConfiguration(
            f"spark.executor.memoryOverheadFactor={share!r} is not a number", hint="for example 0.1"
        ) from None
    overhead = memory_mb(key, merged[key]) if key in merged else default
    if (python := "spark.executor.pyspark.memory") in merged:
        overhead += memory_mb(python, merged[python])
    if is_true(merged, OFF_HEAP_SWITCH):
        overhead += _mebibytes(OFF_HEAP_SIZE, merged.get(OFF_HEAP_SIZE, "0"), "b")
    return overhead


def executor_java_options(merged: Mapping[str, str]) -> tuple[str, ...]:
    """Return the executors' JVM options: Spark's default and extra options, then ``-D`` options.

    There is a ``-D`` option for each setting that an executor needs before it has reached the driver.
    """
    options: list[str] = []
    for key in ("spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions"):
        options += split_options(key, merged.get(key, ""))
    # Spark adds its module options to these settings; an executor's command has them anyway.
    modules = set(jvm_open_options())
    options = [option for option in options if option not in modules]
    return (*options, *(f"-D{key}={value}" for key, value in sorted(merged.items()) if _is_startup(key)))


def _is_startup(key: str) -> bool:
    if is_secret(key):
        return False
    return key.startswith(_STARTUP_PREFIXES) or (key.startswith("spark.") and key.endswith(".port"))


def split_options(key: str, text: str) -> list[str]:
    """Split JVM options as Spark does. Raises InvalidSparkConfiguration (an open quote, or ``-Xmx``)."""
    try:
        options = split_words(text, bare_escapes=not key.startswith("spark.executor."))
    except UnreadableWords as error:
        raise InvalidSparkConfiguration(
            f"{key}={text!r} cannot be split into words: {error}", hint=error.hint
        ) from error
    if any(option.startswith("-Xmx") for option in options):
        memory = key.split(".")[1]
        raise InvalidSparkConfiguration(f"{key} must not set -Xmx ({text})", hint=f"use spark.{memory}.memory instead")
    return options


def memory_mb(key: str, text: str) -> int:
    """Convert Spark's memory notation (``512m``, ``2g``, ``1024`` = MiB) to MiB. Raises InvalidSparkConfiguration."""
    megabytes = _mebibytes(key, text, "m")
    if megabytes <= 0:
        raise InvalidSparkConfiguration(f"{key}={text!r} is less than 1 MiB", hint="for example 512m or 2g")
    return megabytes


def _mebibytes(key: str, text: str, unit: str) -> int:
    """Convert Spark's memory notation to MiB, rounded down. ``unit``: of a number without one, which Spark defines."""
    match = _MEMORY.match(text)
    if match is None:
        raise InvalidSparkConfiguration(f"{key}={text!r} is not an amount of memory", hint="for example 512m or 2g")
    return int(match[1]) * _BYTES[(match[2] or match[3] or unit).lower()] // 1024**2


def _count(merged: Mapping[str, str], key: str, default: int, *, least: int = 1) -> int:
    text = merged.get(key)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < least:
        what = "a number above zero" if least else "a number"
        raise InvalidSparkConfiguration(f"{key}={text!r} is not {what}", hint="for example 1")
    return number


def _instances(merged: Mapping[str, str], cores: int) -> int | None:
    if "spark.executor.instances" in merged:
        return _count(merged, "spark.executor.instances", 1, least=0 if is_true(merged, DYNAMIC_ALLOCATION) else 1)
    if "spark.cores.max" in merged:
        return max(1, _count(merged, "spark.cores.max", 1) // cores)
    return None

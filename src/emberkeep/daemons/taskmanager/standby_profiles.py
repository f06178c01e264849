"""The profiles of the processes that jobs ask for: what a standby process must have from its start."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.jobs.model import JobGraph
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.jvm.configuration import memory_mb, split_options
from emberkeep.spark.jvm.driver_command import read_defaults
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.standby.executor_jvm import job_options

_PROPERTY = "-D"
_PLACEHOLDER = "{{"  # for an id that no other executor has


def driver_profile(graph: JobGraph, environ: Mapping[str, str]) -> StandbyProfile | str:
    """Return the profile of a job's driver, or why no standby driver can serve the job.

    The script can still change its settings in code. The driver then starts another JVM.
    """
    try:
        conf = {**read_defaults(environ), **graph.spark_conf}
        heap = conf.get("spark.driver.memory")
        heap_mb = graph.resources.driver_memory_mb if heap is None else memory_mb("spark.driver.memory", heap)
        keys = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
        options = tuple(option for key in keys for option in split_options(key, conf.get(key, "")))
    except InvalidSparkConfiguration as error:
        return error.message
    except (OSError, UnicodeDecodeError) as error:
        return f"spark-defaults.conf cannot be read: {error}"
    return _profile(StandbyKind.DRIVER, heap_mb, options)


def executor_profile(launch: ExecutorLaunch) -> StandbyProfile | str:
    """Return the profile of an executor, or why no standby executor can serve the job."""
    if any(_PLACEHOLDER in option for option in launch.java_options):
        return "its Java options name the application or the executor"
    return _profile(StandbyKind.EXECUTOR, launch.heap_mb, job_options(launch))


def _profile(kind: StandbyKind, heap_mb: int, options: tuple[str, ...]) -> StandbyProfile | str:
    """Return the profile. Properties may be secrets of one job, so no standby process is started with them."""
    if any(option.startswith(_PROPERTY) for option in options):
        return "it sets Java properties of its own"
    return StandbyProfile(kind, heap_mb, options)

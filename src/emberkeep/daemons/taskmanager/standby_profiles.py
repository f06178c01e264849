"""What standby processes must have from their start, by what jobs and the configuration ask for, and whose state is
copied for them."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.daemons.encryption import encrypts
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.jobs.model import JobGraph
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.jvm.configuration import memory_mb, split_options
from emberkeep.spark.jvm.driver_command import read_defaults
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.standby.executor_jvm import job_options
from emberkeep.spark.standby.warming import StateWarmUp
from emberkeep.taskmanager.state_gateway.standby_copies import FollowedJob

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
    except OSError as error:
        return f"spark-defaults.conf cannot be read: {error}"
    return _profile(StandbyKind.DRIVER, heap_mb, options)


def executor_profile(launch: ExecutorLaunch) -> StandbyProfile | str:
    """Return the profile of an executor, or why no standby executor can serve the job."""
    if any(_PLACEHOLDER in option for option in launch.java_options):
        return "its Java options name the application or the executor"
    return _profile(StandbyKind.EXECUTOR, launch.heap_mb, job_options(launch))


def warmed_state(configuration: Configuration) -> StateWarmUp:
    """Return which state gateway warm-ups use: one like the task manager's own, or none if it has none."""
    if not configuration[LOCAL_RECOVERY]:
        return StateWarmUp.NONE
    return StateWarmUp.ENCRYPTED if encrypts(configuration) else StateWarmUp.PLAIN


def followed_job(
    graph: JobGraph, checkpoints: tuple[str, ...], configuration: Configuration, users: JobUsers
) -> FollowedJob | None:
    """Return the job whose state is copied for its reserved standby; None if it has no local state, or no user here.

    ``configuration``: the task manager's. ``checkpoints``: durable locations of the job's queries.
    """
    try:
        keeps_copies = configuration.with_recorded(graph.options, "job")[LOCAL_RECOVERY]
        user = users.of(graph.namespace)
    except (Fatal, InvalidInput):
        return None
    return FollowedJob(graph.job_id, checkpoints, None if user is None else user.uid) if keeps_copies else None


def _profile(kind: StandbyKind, heap_mb: int, options: tuple[str, ...]) -> StandbyProfile | str:
    """Return the profile. Properties may be secrets of one job, so no standby process is started with them."""
    if any(option.startswith(_PROPERTY) for option in options):
        return "it sets Java properties of its own"
    return StandbyProfile(kind, heap_mb, options)

"""Spark settings of jobs that run a Spark Connect server: the one that starts it in the driver, and its size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec

from emberkeep.client.submission.preparation import PreparedJob

_KEY = "spark.plugins"
_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_DYNAMIC = "spark.dynamicAllocation.enabled"
_INSTANCES = "spark.executor.instances"
_SIZES = (_DYNAMIC, _INSTANCES, "spark.cores.max")
_IDLE, _IDLE_DEFAULT = "spark.dynamicAllocation.executorIdleTimeout", "60s"
_SHUFFLES = "spark.dynamicAllocation.shuffleTracking.timeout"
_CLEANUP = "spark.sql.connect.shuffleDependency.fileCleanup.enabled"
_DEFAULTS = {
    # As PySpark sets them for its own server: each session has its own classes and files.
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}


def with_connect_server(
    job: PreparedJob, conf: Mapping[str, str], secrets: Mapping[str, str] = MappingProxyType({})
) -> PreparedJob:
    """Return the job with the plugin beside those that it names.

    ``conf``, ``secrets``: Spark settings and secrets that the job has unless its own differ.
    """
    settings = {**_DEFAULTS, **conf, **job.submission.spark_conf}
    plugins = [name.strip() for name in settings.get(_KEY, "").split(",")]
    settings[_KEY] = ",".join((*(name for name in plugins if name not in ("", _PLUGIN)), _PLUGIN))
    submission = job.submission
    changed = msgspec.structs.replace(submission, spark_conf=settings, secrets={**secrets, **submission.secrets})
    return replace(job, submission=changed)


def sized_by_load(job: PreparedJob) -> PreparedJob:
    """Return the job with dynamic allocation and no executors at the start, unless its settings say how many it has.

    A query of a session reads no shuffle files of another one. So the job's server removes them with their query, and
    those that remain keep no executor longer than it would stay without them.
    """
    submission = job.submission
    conf = submission.spark_conf
    files = {_CLEANUP: "true", _SHUFFLES: conf.get(_IDLE, _IDLE_DEFAULT)}
    if any(key in conf for key in _SIZES):
        return replace(job, submission=msgspec.structs.replace(submission, spark_conf={**files, **conf}))
    sized = {**files, **conf, _DYNAMIC: "true", _INSTANCES: "0"}
    resources = msgspec.structs.replace(submission.resources, executors=0)
    return replace(job, submission=msgspec.structs.replace(submission, spark_conf=sized, resources=resources))

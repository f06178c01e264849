"""The Spark setting that starts a Spark Connect server inside a job's driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec

from emberkeep.client.submission.preparation import PreparedJob

_KEY = "spark.plugins"
_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
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

"""The job as the parent of what OpenLineage's listener reports, if the job asks for the listener."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from emberkeep.base.configuration.options import OPENLINEAGE
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.model import ArtefactRole
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.jvm.driver_command import read_defaults
from emberkeep.spark.openlineage import ARTEFACT, LineageParent, brings_listener

_DEFAULT_NAMESPACE = "emberkeep"


def lineage_parent(spec: DriverSpec, configuration: Configuration) -> LineageParent | None:
    """Return the parent of the job's runs; None without ``execution.openlineage``.

    Raises InvalidSparkConfiguration if the listener's jar is not there: Spark would fail with a ClassNotFoundException.
    """
    if not configuration[OPENLINEAGE]:
        return None
    graph = spec.graph
    jars = [file.name for file in spec.files if file.role is ArtefactRole.JAR]
    jars += [jar.name for jar in Path(spark_home(os.environ), "jars").glob(f"{ARTEFACT}*.jar")]
    if not brings_listener(jars, read_defaults(os.environ) | graph.spark_conf):
        raise InvalidSparkConfiguration(
            f"{OPENLINEAGE.key} is on, but the job has no {ARTEFACT} jar",
            hint=f"add it with `--packages io.openlineage:{ARTEFACT}_2.13:<version>` or `--jars`, or set "
            f"`-D {OPENLINEAGE.key}=false`",
        )
    return LineageParent(graph.namespace or _DEFAULT_NAMESPACE, graph.name, UUID(graph.job_id))

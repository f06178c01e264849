"""The job as the parent of what OpenLineage's listener reports, if the job asks for the listener."""

from __future__ import annotations

import os
import re
from pathlib import Path
from uuid import UUID

from emberkeep.base.configuration.options.jobs import OPENLINEAGE
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.model import ArtefactRole
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.jvm.driver_command import read_defaults
from emberkeep.spark.openlineage import ARTEFACT, LineageParent, listener_jars, other_scala

_DEFAULT_NAMESPACE = "emberkeep"


def lineage_parent(spec: DriverSpec, configuration: Configuration) -> LineageParent | None:
    """Return the parent of the job's runs; None without ``execution.openlineage``.

    Raises InvalidSparkConfiguration if the listener's jar is not there, or is for another Scala than Spark's: Spark
    would fail with a ClassNotFoundException or NoClassDefFoundError.
    """
    if not configuration[OPENLINEAGE]:
        return None
    graph = spec.graph
    of_spark = Path(spark_home(os.environ), "jars")
    jars = [file.name for file in spec.files if file.role is ArtefactRole.JAR]
    jars += [jar.name for jar in of_spark.glob(f"{ARTEFACT}*.jar")]
    listeners = listener_jars(jars, read_defaults(os.environ) | graph.spark_conf)
    scala = _scala(of_spark)
    problem = ""
    if not listeners:
        problem = f"the job has no {ARTEFACT} jar"
    elif scala and (other := other_scala(listeners, scala)):
        problem = f"the job's {ARTEFACT}_{other} is for Scala {other}, and this Spark has Scala {scala}"
    if problem:
        raise InvalidSparkConfiguration(
            f"{OPENLINEAGE.key} is on, but {problem}",
            hint=f"add it with `--packages io.openlineage:{ARTEFACT}_{scala or '2.13'}:<version>` or `--jars`, or set "
            f"`-D {OPENLINEAGE.key}=false`",
        )
    return LineageParent(graph.namespace or _DEFAULT_NAMESPACE, graph.name, UUID(graph.job_id))


def _scala(jars: Path) -> str:
    """Return the version of Scala that Spark uses, such as "2.13"; "" if its library has another name."""
    found = [re.fullmatch(r"scala-library-(\d+\.\d+)\..*", jar.name) for jar in jars.glob("scala-library-*.jar")]
    return next((match[1] for match in found if match), "")

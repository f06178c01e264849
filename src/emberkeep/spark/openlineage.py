"""OpenLineage's listener in a job's Spark, with the job as the parent of its runs. Pure.

The property names are those of OpenLineage's Spark integration: https://openlineage.io/docs/integrations/spark/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

LISTENER: Final = "io.openlineage.spark.agent.OpenLineageSparkListener"
ARTEFACT: Final = "openlineage-spark"  # how the jar's name begins, and the id of the package
_LISTENERS: Final = "spark.extraListeners"
_PACKAGES: Final = "spark.jars.packages"
_PATHS: Final = ("spark.jars", _PACKAGES, "spark.driver.extraClassPath")


@dataclass(frozen=True)
class LineageParent:
    """The job as OpenLineage names it."""

    namespace: str
    job_name: str
    run_id: UUID

    def settings(self, present: Mapping[str, str]) -> dict[str, str]:
        """Return the settings to add to those of a new SparkContext. A parent that the user has set stays."""
        listeners = [name.strip() for name in present.get(_LISTENERS, "").split(",") if name.strip()]
        added = {} if LISTENER in listeners else {_LISTENERS: ",".join((*listeners, LISTENER))}
        if any(key.startswith("spark.openlineage.parent") for key in present):
            return added
        return added | {
            "spark.openlineage.parentJobNamespace": self.namespace,
            "spark.openlineage.parentJobName": self.job_name,
            "spark.openlineage.parentRunId": str(self.run_id),
        }


def brings_listener(jars: Iterable[str], spark_conf: Mapping[str, str]) -> bool:
    """True if one of ``jars`` (names of files) is the listener's, or the configuration names it.

    >>> brings_listener(["openlineage-spark_2.13-1.40.0.jar"], {})
    True
    >>> brings_listener([], {"spark.jars.packages": "org.example:other:1"})
    False
    """
    return any(name.startswith(ARTEFACT) for name in jars) or any(ARTEFACT in spark_conf.get(key, "") for key in _PATHS)

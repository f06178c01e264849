"""OpenLineage's listener in a job's Spark, with the job as the parent of its runs. Pure.

The property names are those of OpenLineage's Spark integration: https://openlineage.io/docs/integrations/spark/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

LISTENER: Final = "io.openlineage.spark.agent.OpenLineageSparkListener"
ARTEFACT: Final = "openlineage-spark"  # how the jar's name begins, and the id of the package
_LISTENERS: Final = "spark.extraListeners"
_PACKAGES: Final = "spark.jars.packages"
_FILES: Final = ("spark.jars", "spark.driver.extraClassPath")
_PATHS: Final = (*_FILES, _PACKAGES)
_SCALA: Final = re.compile(rf"{ARTEFACT}_(\d+\.\d+)")
_PARENT: Final = "spark.openlineage.parent"
_ROOT: Final = "spark.openlineage.rootParent"


@dataclass(frozen=True)
class LineageParent:
    """The job as OpenLineage names it."""

    namespace: str
    job_name: str
    run_id: UUID

    def settings(self, present: Mapping[str, str]) -> dict[str, str]:
        """Return the settings to add to those of a new SparkContext. A parent or a root that the user has set stays.

        OpenLineage calls the top of a tree of runs its root. The job has no parent of its own, so it is the root, too.
        """
        listeners = [name.strip() for name in present.get(_LISTENERS, "").split(",") if name.strip()]
        added = {} if LISTENER in listeners else {_LISTENERS: ",".join((*listeners, LISTENER))}
        if _has(present, _PARENT):
            return added
        return added | self._named(_PARENT) | ({} if _has(present, _ROOT) else self._named(_ROOT))

    def _named(self, prefix: str) -> dict[str, str]:
        return {
            f"{prefix}JobNamespace": self.namespace,
            f"{prefix}JobName": self.job_name,
            f"{prefix}RunId": str(self.run_id),
        }


def _has(conf: Mapping[str, str], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in conf)


def listener_jars(jars: Iterable[str], spark_conf: Mapping[str, str]) -> list[str]:
    """Return what brings the listener: those of ``jars`` (names of files) and parts of the configuration that name it.

    >>> listener_jars(["openlineage-spark_2.13-1.40.0.jar", "other.jar"], {})
    ['openlineage-spark_2.13-1.40.0.jar']
    >>> listener_jars([], {"spark.jars.packages": "org.example:other:1,io.openlineage:openlineage-spark_2.13:1.40.0"})
    ['io.openlineage:openlineage-spark_2.13:1.40.0']
    """
    named = [
        part.strip() for key in _PATHS for part in re.split("[,:/]" if key in _FILES else ",", spark_conf.get(key, ""))
    ]
    return [name for name in (*jars, *named) if ARTEFACT in name]


def other_scala(listeners: Iterable[str], scala: str) -> str:
    """Return the version of Scala for which all ``listeners`` are built, if that is another than ``scala``; else "".

    >>> other_scala(["openlineage-spark_2.12-1.40.0.jar"], "2.13")
    '2.12'
    >>> other_scala(["openlineage-spark_2.12-1.40.0.jar", "openlineage-spark_2.13-1.40.0.jar"], "2.13")
    ''
    """
    versions = [found[1] if (found := _SCALA.search(name)) else scala for name in listeners]
    return "" if scala in versions else next(iter(versions), "")

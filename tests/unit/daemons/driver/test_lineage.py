"""OpenLineage's listener is turned on by one setting, and only where its jar is."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.driver.lineage import lineage_parent
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.model import ArtefactRole
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.openlineage import LineageParent
from emberkeep.taskmanager.libraries.cache import BoundFile
from tests.unit.formats.golden_samples import DRIVER_SPEC

JAR = BoundFile(name="openlineage-spark_2.13-1.40.0.jar", path="/b/1", role=ArtefactRole.JAR)
ON = Configuration().with_texts({"execution.openlineage": "true"}, "job")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's home, whose jars have no listener."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return tmp_path


def spec(*files: BoundFile, conf: dict[str, str] | None = None, namespace: str = "team") -> DriverSpec:
    graph = msgspec.structs.replace(DRIVER_SPEC.graph, spark_conf=conf or {}, namespace=namespace)
    return msgspec.structs.replace(DRIVER_SPEC, files=files, graph=graph)


def test_nothing_is_turned_on_by_the_jar_alone() -> None:
    assert lineage_parent(spec(JAR), Configuration()) is None


def test_the_job_is_the_parent() -> None:
    graph = DRIVER_SPEC.graph
    assert lineage_parent(spec(JAR), ON) == LineageParent("team", graph.name, UUID(graph.job_id))
    without = lineage_parent(spec(JAR, namespace=""), ON)
    assert without is not None
    assert without.namespace == "emberkeep"


def test_the_jar_may_come_from_a_package_from_the_defaults_or_from_spark(home: Path) -> None:
    package = {"spark.jars.packages": "io.openlineage:openlineage-spark_2.13:1.40.0"}
    assert lineage_parent(spec(conf=package), ON) is not None
    (home / "conf" / "spark-defaults.conf").write_text("spark.driver.extraClassPath /opt/openlineage-spark.jar\n")
    assert lineage_parent(spec(), ON) is not None
    (home / "conf" / "spark-defaults.conf").unlink()
    (home / "jars" / JAR.name).touch()
    assert lineage_parent(spec(), ON) is not None


def test_without_the_jar_it_is_refused_in_words() -> None:
    other = msgspec.structs.replace(JAR, name="other.jar")
    with pytest.raises(InvalidSparkConfiguration, match="no openlineage-spark jar") as caught:
        lineage_parent(spec(other), ON)
    assert "--packages io.openlineage:openlineage-spark_2.13" in str(caught.value.hint)


def test_a_jar_for_another_scala_is_refused_in_words(home: Path) -> None:
    (home / "jars" / "scala-library-2.13.18.jar").touch()
    wrong = msgspec.structs.replace(JAR, name="openlineage-spark_2.12-1.40.0.jar")
    said = r"openlineage-spark_2\.12.* Scala 2\.12.* Scala 2\.13"
    with pytest.raises(InvalidSparkConfiguration, match=said) as caught:
        lineage_parent(spec(wrong), ON)
    assert "openlineage-spark_2.13" in str(caught.value.hint)
    package = {"spark.jars.packages": "io.openlineage:openlineage-spark_2.12:1.40.0"}
    with pytest.raises(InvalidSparkConfiguration, match=r"Scala 2\.13"):
        lineage_parent(spec(conf=package), ON)
    assert lineage_parent(spec(wrong, JAR), ON) is not None, "the right one is there, too"

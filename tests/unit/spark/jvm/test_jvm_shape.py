"""Which jobs a running JVM of a driver can serve."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.driver_command import JvmShape, plan_jvm
from emberkeep.spark.model import DriverSettings, JobFiles

SHAPE = JvmShape(
    java=Path("/java/bin/java"),
    heap_mb=1024,
    options=("-Xss4m",),
    class_path="/spark/jars/*",
    arguments=(),
    submitted={},
    page="127.0.0.1",
    libraries="",
)


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, ()),
        ({"java": Path("/other/java")}, ("another Java",)),
        ({"heap_mb": 2048}, ("a heap of 2048 MiB",)),
        ({"options": ()}, ("other Java options",)),
        ({"options": ("-Xss4m", "-Xss4m")}, ("other Java options",)),
        ({"class_path": "/spark/jars/*:/extra.jar"}, ("another class path",)),
        ({"arguments": ("--packages", "g:a:1")}, ("arguments of spark-submit",)),
        ({"submitted": {"spark.jars.packages": "g:a:1"}}, ("settings that a JVM reads once",)),
        ({"page": "10.0.0.1"}, ("another address of the Spark UI",)),
        ({"heap_mb": 1, "options": ()}, ("a heap of 1 MiB", "other Java options")),
    ],
)
def test_what_differs(changes: dict[str, Any], differences: tuple[str, ...]) -> None:
    assert SHAPE.differences(dataclasses.replace(SHAPE, **changes)) == differences


def test_every_part_of_a_shape_is_compared() -> None:
    others: dict[str, Any] = {field.name: object() for field in dataclasses.fields(JvmShape)}
    for name, value in others.items():
        assert SHAPE.differences(dataclasses.replace(SHAPE, **{name: value})), name


SETTINGS = DriverSettings(
    host="127.0.0.1",
    spark_conf={},
    scratch_dir=Path("/scratch"),
    checkpoint_root="file:///checkpoints",
    secret="hush",
    java=JavaRuntime(None, Path("/java/bin/java"), 17),
    app_name="an app",
    driver_memory_mb=1024,
)
JARS = JobFiles(jars=(Path("/job/one.jar"),))


@pytest.mark.parametrize(
    ("code", "changes", "environ", "differences"),
    [
        ({}, {}, {}, ()),
        ({"spark.sql.shuffle.partitions": "3", "spark.app.name": "x", "spark.executor.memory": "9g"}, {}, {}, ()),
        ({}, {"secret": None, "checkpoint_root": "s3://b", "scratch_dir": Path("/other"), "app_name": "y"}, {}, ()),
        ({}, {"job_files": JARS}, {}, ()),
        ({"spark.driver.userClassPathFirst": "true"}, {"job_files": JARS}, {}, ("another class path",)),
        ({"spark.driver.extraClassPath": "/x.jar"}, {}, {}, ("another class path",)),
        ({"spark.driver.memory": "3g"}, {}, {}, ("a heap of 3072 MiB",)),
        ({"spark.driver.memory": "1024m"}, {"driver_memory_mb": 1}, {}, ()),
        ({"spark.driver.extraJavaOptions": "-Dx=y"}, {}, {}, ("other Java options",)),
        ({"spark.driver.extraLibraryPath": "/n"}, {}, {}, ("other native libraries",)),
        ({"spark.jars.packages": "g:a:1"}, {}, {}, ("settings that a JVM reads once",)),
        ({"spark.sql.codegen.cache.maxEntries": "7"}, {}, {}, ("settings that a JVM reads once",)),
        ({"spark.kerberos.principal": "p"}, {}, {}, ("settings that a JVM reads once",)),
        ({}, {}, {"PYSPARK_SUBMIT_ARGS": "--packages g:a:1 pyspark-shell"}, ("arguments of spark-submit",)),
        ({}, {}, {"PYSPARK_SUBMIT_ARGS": "--driver-memory 3g pyspark-shell"}, ("a heap of 3072 MiB",)),
        ({"spark.ui.filters": "own.Filter"}, {"host": "10.0.0.1"}, {}, ("another address of the Spark UI",)),
    ],
)
def test_what_of_a_job_differs(
    code: dict[str, str], changes: dict[str, Any], environ: dict[str, str], differences: tuple[str, ...], tmp_path: Path
) -> None:
    site = {"SPARK_CONF_DIR": str(tmp_path)}
    standby = plan_jvm({}, SETTINGS, site).shape
    job = plan_jvm(code, dataclasses.replace(SETTINGS, **changes), {**site, **environ}).shape
    assert standby.differences(job) == differences

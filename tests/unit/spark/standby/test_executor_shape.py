"""Which executors a standby JVM can become."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.standby.executor_jvm import (
    job_options,
    shape_of,
    standby_command,
    standby_shape,
)

JAVA = JavaRuntime(None, Path("/java/bin/java"), 17)
IPV4 = "-Djava.net.preferIPv6Addresses=false"
LAUNCH = ExecutorLaunch(
    driver_url="spark://driver",
    executor_id="7",
    host="127.0.0.1",
    cores=1,
    heap_mb=768,
    app_id="app-1",
    java=JAVA.executable,
    java_options=("-Xss4m", "-Dspark.driver.port=7077", IPV4),
    extra_class_path="",
    python="/venv/bin/python",
    environ={},
    work_dir=Path("/work"),
    local_dir=Path("/local"),
    temporary_dir=Path("/temporary"),
    auth_secret="hush",
)


def test_a_jvm_for_a_profile_fits_what_asks_for_it() -> None:
    assert job_options(LAUNCH) == ("-Xss4m",)
    assert standby_shape(JAVA, 768, job_options(LAUNCH), {}).differences(shape_of(LAUNCH)) == ()


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, ()),
        ({"executor_id": "8", "cores": 4, "app_id": "app-2", "driver_url": "spark://other"}, ()),
        ({"jars": (Path("/job/a.jar"),)}, ()),
        ({"java_options": (IPV4, "-Dspark.driver.port=1", "-Dspark.x=y", "-Xss4m")}, ()),
        ({"auth_secret": None}, ()),
        ({"java": Path("/other/java")}, ("another Java",)),
        ({"heap_mb": 1024}, ("a heap of 1024 MiB",)),
        ({"extra_class_path": "/extra/a.jar"}, ("another class path",)),
        ({"jars": (Path("/job/a.jar"),), "jars_first": True}, ("another class path",)),
        ({"environ": {"SPARK_DIST_CLASSPATH": "/hadoop/a.jar"}}, ("another class path",)),
        ({"java_options": (IPV4,)}, ("other Java options",)),
        ({"java_options": ("-Xss4m", "-Xss4m", IPV4)}, ("other Java options",)),
        ({"java_options": ("-Xss4m",)}, ("other Java options",)),
        ({"java_options": ("-Xss4m", IPV4, "-Dlog4j2.configurationFile=/own")}, ("other Java options",)),
        (
            {"java": Path("/other/java"), "heap_mb": 1, "java_options": ()},
            ("another Java", "a heap of 1 MiB", "other Java options"),
        ),
    ],
)
def test_what_differs(changes: dict[str, Any], differences: tuple[str, ...]) -> None:
    standby = standby_shape(JAVA, 768, ("-Xss4m",), {})
    assert standby.differences(shape_of(dataclasses.replace(LAUNCH, **changes))) == differences


def test_no_secret_and_no_setting_of_a_job_is_on_the_command_line() -> None:
    shape = standby_shape(JAVA, 768, ("-Xss4m",), {})
    command = standby_command(shape, None, Path("/temporary"))
    assert command[0] == "/java/bin/java"
    assert {"-Xmx768m", "-Xss4m", IPV4, "-Djava.io.tmpdir=/temporary"} <= set(command)
    assert not any(word.startswith("-Dspark.") for word in command)

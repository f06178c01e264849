"""Merging configuration: who wins, what is overridden, what executors are told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from uuid import UUID

import pytest

from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.java import JavaRuntime, jvm_open_options
from emberkeep.spark.jvm.configuration import (
    application,
    executor_java_options,
    executor_overhead_mb,
    master_configuration,
    memory_mb,
    merge,
    split_options,
    with_defaults,
)
from emberkeep.spark.model import DriverSettings
from emberkeep.spark.openlineage import LISTENER, LineageParent

SETTINGS = DriverSettings(
    host="10.0.0.5",
    spark_conf={},
    scratch_dir=Path("/scratch"),
    checkpoint_root="file:///checkpoints",
    secret="hush",
    java=JavaRuntime(None, Path("/java"), 17),
    app_name="an app",
    driver_memory_mb=900,
)
_MASTER = "spark://127.0.0.1:7077"


def test_master_of_the_code_is_overridden_with_one_warning() -> None:
    merged = merge({"spark.master": "local[*]"}, SETTINGS, _MASTER)
    assert merged.values["spark.master"] == _MASTER
    [warning] = merged.warnings
    assert "spark.master=local[*]" in warning


def test_nothing_is_warned_of_when_nothing_is_overridden() -> None:
    assert merge({}, SETTINGS, _MASTER).warnings == ()
    assert merge({"spark.dynamicAllocation.enabled": "false"}, SETTINGS, _MASTER).warnings == ()


def test_an_event_log_is_written_where_it_can_be_and_the_users_settings_win() -> None:
    assert not any(key.startswith("spark.eventLog") for key in with_defaults({}, {}, SETTINGS))
    settings = dataclasses.replace(SETTINGS, event_log=Path("/jobs/a b/1"))
    defaults = with_defaults({}, {}, settings)
    assert defaults["spark.eventLog.enabled"] == defaults["spark.eventLog.rolling.enabled"] == "true"
    assert defaults["spark.eventLog.dir"] == "file:///jobs/a%20b/1"
    chosen = with_defaults({"spark.eventLog.enabled": "false"}, {"spark.eventLog.dir": "s3a://logs"}, settings)
    assert chosen["spark.eventLog.enabled"] == "false"
    assert "spark.eventLog.dir" not in chosen


@pytest.mark.req("ELASTIC-2")
def test_dynamic_allocation_needs_no_shuffle_service_and_tracks_shuffles_unless_the_user_says_otherwise() -> None:
    switch = {"spark.dynamicAllocation.enabled": "TRUE"}
    merged = merge(switch, SETTINGS, _MASTER)
    assert "spark.dynamicAllocation.enabled" not in merged.values, "it stays on"
    assert merged.values["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    assert merged.values["spark.executor.cores"] == "1", "otherwise Spark warns"
    assert merged.warnings == ()
    assert "spark.executor.cores" not in merge(switch | {"spark.executor.cores": "2"}, SETTINGS, _MASTER).values

    chosen = merge(switch | {"spark.dynamicAllocation.shuffleTracking.enabled": "false"}, SETTINGS, _MASTER)
    assert "spark.dynamicAllocation.shuffleTracking.enabled" not in chosen.values

    of_yarn = merge(switch | {"spark.shuffle.service.enabled": "true"}, SETTINGS, _MASTER)
    assert of_yarn.values["spark.shuffle.service.enabled"] == "false"
    [warning] = of_yarn.warnings
    assert "there is no external shuffle service" in warning

    fixed = merge({"spark.shuffle.service.enabled": "true"}, SETTINGS, _MASTER)
    assert fixed.warnings == ()
    assert "spark.shuffle.service.enabled" not in fixed.values


def test_the_job_is_the_parent_of_what_openlineage_reports() -> None:
    parent = LineageParent("team", "etl", UUID("0123456789abcdef0123456789abcdef"))
    settings = dataclasses.replace(SETTINGS, lineage=parent)
    merged = merge({"spark.extraListeners": "org.example.Mine"}, settings, _MASTER).values
    assert merged["spark.extraListeners"] == f"org.example.Mine,{LISTENER}"
    assert merged["spark.openlineage.parentJobNamespace"] == "team"
    assert merged["spark.openlineage.parentJobName"] == "etl"
    assert merged["spark.openlineage.parentRunId"] == "01234567-89ab-cdef-0123-456789abcdef"
    assert merged["spark.openlineage.rootParentJobNamespace"] == "team"
    assert merged["spark.openlineage.rootParentJobName"] == "etl"
    assert merged["spark.openlineage.rootParentRunId"] == "01234567-89ab-cdef-0123-456789abcdef"
    assert "spark.extraListeners" not in merge({}, SETTINGS, _MASTER).values


def test_a_listener_and_a_parent_of_the_user_stay() -> None:
    settings = dataclasses.replace(SETTINGS, lineage=LineageParent("team", "etl", UUID(int=1)))
    own = {"spark.extraListeners": LISTENER, "spark.openlineage.parentRunId": "airflow's"}
    assert not any("openlineage" in key.lower() for key in merge(own, settings, _MASTER).values)


def test_a_root_of_the_user_stays_above_the_job() -> None:
    settings = dataclasses.replace(SETTINGS, lineage=LineageParent("team", "etl", UUID(int=1)))
    merged = merge({"spark.openlineage.rootParentRunId": "the DAG run's"}, settings, _MASTER).values
    assert merged["spark.openlineage.parentJobName"] == "etl"
    assert not any(key.startswith("spark.openlineage.root") for key in merged)


def test_settings_of_the_user_are_left_alone() -> None:
    merged = merge({"spark.driver.port": "4711", "spark.ui.enabled": "true"}, SETTINGS, _MASTER)
    assert not {"spark.driver.port", "spark.ui.enabled"} & merged.values.keys()
    assert merged.values["spark.driver.host"] == "10.0.0.5"


def test_a_driver_announces_its_host_and_binds_another_address() -> None:
    settings = dataclasses.replace(SETTINGS, host="fd00::5", bind_host="::")
    merged = merge({}, settings, _MASTER).values
    assert (merged["spark.driver.host"], merged["spark.driver.bindAddress"]) == ("[fd00::5]", "::")
    described = application({}, "app-1", 4711, settings, "me", "python")
    assert described.driver_url == "spark://CoarseGrainedScheduler@[fd00::5]:4711"


def test_executors_learn_before_connecting_what_connecting_takes_but_no_secret() -> None:
    options = executor_java_options(
        {
            "spark.executor.extraJavaOptions": f"-Da='b c' {jvm_open_options()[2]}",
            "spark.authenticate": "true",
            "spark.authenticate.secret": "hush",
            "spark.network.timeout": "99s",
            "spark.rpc.askTimeout": "9s",
            "spark.driver.port": "4711",
            "spark.sql.shuffle.partitions": "3",
        }
    )
    assert options == (
        "-Da=b c",
        "-Dspark.authenticate=true",
        "-Dspark.driver.port=4711",
        "-Dspark.network.timeout=99s",
        "-Dspark.rpc.askTimeout=9s",
    )


def test_application_describes_its_executors() -> None:
    described = application(
        {
            "spark.executor.cores": "4",
            "spark.executor.memory": "2g",
            "spark.cores.max": "12",
            "spark.executorEnv.TZ": "UTC",
            "spark.executor.extraLibraryPath": "/native",
            "spark.executor.extraClassPath": "/a.jar",
            "spark.authenticate": "true",
            "spark.authenticate.secret": "hush",
            "spark.executor.userClassPathFirst": "true",
        },
        "app-1",
        4711,
        SETTINGS,
        "me",
        "./environment/bin/python",
    )
    assert described.driver_url == "spark://CoarseGrainedScheduler@10.0.0.5:4711"
    assert (described.executor_cores, described.executor_heap_mb, described.executor_instances) == (4, 2048, 3)
    assert described.executor_env == {"TZ": "UTC", "SPARK_USER": "me", "LD_LIBRARY_PATH": "/native"}
    assert described.auth_secret == "hush"
    assert described.extra_class_path == "/a.jar"
    assert described.python == "./environment/bin/python"
    assert described.user_class_path_first


def test_defaults_of_an_application_are_told_from_what_was_asked_for() -> None:
    described = application({}, "app-1", 1, SETTINGS, "me", "python3")
    assert (described.executor_cores, described.executor_heap_mb) == (1, 1024)
    assert not described.executor_cores_set
    assert not described.executor_heap_set
    assert described.executor_instances is None
    assert described.auth_secret is None
    assert not described.user_class_path_first


def test_dynamic_allocation_may_begin_without_executors() -> None:
    conf = {"spark.executor.instances": "0"}
    dynamic = {**conf, "spark.dynamicAllocation.enabled": "true"}
    assert application(dynamic, "app-1", 1, SETTINGS, "me", "python3").executor_instances == 0
    with pytest.raises(InvalidSparkConfiguration, match="'0' is not a number above zero"):
        application(conf, "app-1", 1, SETTINGS, "me", "python3")


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.executor.cores", "two"), ("spark.executor.cores", "0"), ("spark.executor.memory", "lots")],
)
def test_impossible_executors_are_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidSparkConfiguration, match=rf"{key}='{value}'"):
        application({key: value}, "app-1", 1, SETTINGS, "me", "python3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512m", 512), ("2g", 2048), ("2GB", 2048), ("1024", 1024), ("1t", 1024**2), ("2048k", 2), ("2097152B", 2)],
)
def test_memory_is_read_as_spark_reads_it(text: str, expected: int) -> None:
    assert memory_mb("spark.executor.memory", text) == expected


@pytest.mark.parametrize(
    ("conf", "overhead"),
    [
        ({}, 384),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(64 * 1024**2)}, 448),
        ({"spark.memory.offHeap.enabled": "TRUE", "spark.memory.offHeap.size": "64m"}, 448),
        ({"spark.memory.offHeap.enabled": "false", "spark.memory.offHeap.size": "64m"}, 384),
        ({"spark.executor.minMemoryOverhead": "512"}, 512),
        ({"spark.executor.memoryOverhead": "100m", "spark.executor.pyspark.memory": "256"}, 356),
    ],
)
def test_memory_beyond_the_heap_is_counted_as_spark_and_the_client_count_it(
    conf: dict[str, str], overhead: int
) -> None:
    assert executor_overhead_mb(conf, 1024) == overhead


def test_an_endless_share_of_overhead_is_refused() -> None:
    with pytest.raises(InvalidSparkConfiguration, match="memoryOverheadFactor='inf' is not a number"):
        executor_overhead_mb({"spark.executor.memoryOverheadFactor": "inf"}, 1024)


def test_memory_below_one_mebibyte_is_refused() -> None:
    with pytest.raises(InvalidSparkConfiguration, match="less than 1 MiB"):
        memory_mb("spark.executor.memory", "100k")


def test_heap_in_java_options_is_refused_with_the_right_setting() -> None:
    with pytest.raises(InvalidSparkConfiguration, match=r"use spark\.driver\.memory"):
        split_options("spark.driver.extraJavaOptions", "-Xmx3g")
    with pytest.raises(InvalidSparkConfiguration, match="close the quote"):
        split_options("spark.driver.extraJavaOptions", "-Da='b")
    with pytest.raises(InvalidSparkConfiguration, match="write a backslash as"):
        split_options("spark.driver.extraJavaOptions", "-Dx=C:\\")


@pytest.mark.parametrize(
    ("text", "driver", "executor"),
    [
        ("", [], []),
        (" -Da=1\t-Db=2\n", ["-Da=1", "-Db=2"], ["-Da=1", "-Db=2"]),
        ("-Da='b c' \"-Dd=e f\" ''", ["-Da=b c", "-Dd=e f", ""], ["-Da=b c", "-Dd=e f", ""]),
        (r"-Dp=\d+ -Dq=C:\x", ["-Dp=d+", "-Dq=C:x"], [r"-Dp=\d+", r"-Dq=C:\x"]),
        (r"-Dp=a\ b", ["-Dp=a b"], ["-Dp=a\\", "b"]),
        (r""" "-Dp=\"a\\b\c" """, ['-Dp="a\\bc'], ['-Dp="a\\bc']),
        (r"'-Dp=\d'", [r"-Dp=\d"], [r"-Dp=\d"]),
    ],
)
def test_java_options_are_split_as_spark_splits_them(text: str, driver: list[str], executor: list[str]) -> None:
    assert split_options("spark.driver.extraJavaOptions", text) == driver
    assert split_options("spark.executor.extraJavaOptions", text) == executor


def test_embedded_master_gets_what_its_connections_need_only() -> None:
    conf = master_configuration({"spark.authenticate": "true", "spark.authenticate.secret": "hush", "spark.sql.x": "1"})
    assert conf["spark.authenticate.secret"] == "hush"
    assert conf["spark.master.rest.enabled"] == "false"
    assert "spark.sql.x" not in conf


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize(
    ("change", "decommissions"),
    [
        ({}, True),
        ({"spark.decommission.enabled": "false"}, False),
        ({"spark.executor.decommission.signal": "PWR"}, True),
        ({"spark.executor.decommission.signal": "USR2"}, False),
    ],
)
def test_executors_hand_over_their_blocks_unless_the_user_wants_it_otherwise(
    change: dict[str, str], decommissions: bool
) -> None:
    merged = with_defaults(change, {}, SETTINGS)
    assert application(merged, "app-1", 1, SETTINGS, "me", "python3").decommissions is decommissions


@pytest.mark.req("RES-1")
def test_a_driver_reads_its_resources_from_the_file_of_its_task_manager() -> None:
    settings = dataclasses.replace(SETTINGS, resources_file="/driver/resources.json")
    asked = {"spark.driver.resource.gpu.amount": "1"}
    assert merge(asked, settings, _MASTER).values["spark.driver.resourcesFile"] == "/driver/resources.json"
    assert "spark.driver.resourcesFile" not in merge(asked, SETTINGS, _MASTER).values

from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.submission.spark_options import SparkOptions, spark_configuration


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SparkOptions(), {}),
        (
            SparkOptions(conf=("spark.a=1", "spark.b=x=y", " spark.c = 3 ")),
            {"spark.a": "1", "spark.b": "x=y", "spark.c": "3"},
        ),
        (SparkOptions(conf=("spark.a=1", "spark.a=2")), {"spark.a": "2"}),
        (SparkOptions(conf=("spark.a=",)), {"spark.a": ""}),
        (SparkOptions(conf=("spark.a= ", "spark.b=\t|\n")), {"spark.a": " ", "spark.b": "\t|\n"}),
        (SparkOptions(name="n"), {"spark.app.name": "n"}),
        (SparkOptions(driver_memory="2g", driver_cores="2"), {"spark.driver.memory": "2g", "spark.driver.cores": "2"}),
        (SparkOptions(executor_memory="3g", conf=("spark.executor.memory=1g",)), {"spark.executor.memory": "3g"}),
        (
            SparkOptions(executor_cores="4", num_executors="5"),
            {"spark.executor.cores": "4", "spark.executor.instances": "5"},
        ),
        (SparkOptions(total_executor_cores="8"), {"spark.cores.max": "8"}),
        (
            SparkOptions(driver_java_options="-Dx=1", driver_class_path="a:b", driver_library_path="/l"),
            {
                "spark.driver.extraJavaOptions": "-Dx=1",
                "spark.driver.extraClassPath": "a:b",
                "spark.driver.extraLibraryPath": "/l",
            },
        ),
        (
            SparkOptions(packages="g:a:1", exclude_packages="g:b", repositories="https://r"),
            {"spark.jars.packages": "g:a:1", "spark.jars.excludes": "g:b", "spark.jars.repositories": "https://r"},
        ),
        (
            SparkOptions(py_files="a.py", files="f", archives="z", jars="j"),
            {"spark.submit.pyFiles": "a.py", "spark.files": "f", "spark.archives": "z", "spark.jars": "j"},
        ),
    ],
)
def test_options_become_spark_keys(options: SparkOptions, expected: dict[str, str]) -> None:
    found = spark_configuration(options, {})
    assert found.values == expected
    assert found.notices == ()


def test_later_sources_win(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.a defaults\nspark.b defaults\nspark.c defaults\nspark.d defaults\n"
    )
    properties = tmp_path / "p.properties"
    properties.write_text("spark.b=file\nspark.c=file\nspark.executor.memory=1g\n")
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    assert spark_configuration(SparkOptions(), environ).values["spark.d"] == "defaults"
    options = SparkOptions(properties_file=str(properties), conf=("spark.c=conf",), executor_memory="2g")
    assert spark_configuration(options, environ).values == {
        "spark.b": "file",
        "spark.c": "conf",
        "spark.executor.memory": "2g",
    }
    both = SparkOptions(properties_file=str(properties), load_spark_defaults=True)
    assert spark_configuration(both, environ).values["spark.a"] == "defaults"


def test_defaults_lie_in_spark_home_otherwise(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.a 1")
    assert spark_configuration(SparkOptions(), {"SPARK_HOME": str(tmp_path)}).values == {"spark.a": "1"}


def test_the_environment_gives_way_to_everything(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.memory 2g\n")
    environ = {"SPARK_EXECUTOR_MEMORY": "1g", "SPARK_EXECUTOR_CORES": "2", "SPARK_CONF_DIR": str(tmp_path)}
    expected = {"spark.executor.memory": "2g", "spark.executor.cores": "2"}
    assert spark_configuration(SparkOptions(), environ).values == expected


@pytest.mark.parametrize("pair", ["spark.a", "=1", ""])
def test_a_property_without_key_or_value_is_an_error(pair: str) -> None:
    with pytest.raises(InvalidInput, match="there is no '='"):
        spark_configuration(SparkOptions(conf=(pair,)), {})


def test_a_properties_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--properties-file: cannot read .*none: No such file"):
        spark_configuration(SparkOptions(properties_file=str(tmp_path / "none")), {})


@pytest.mark.parametrize(
    ("options", "notice"),
    [
        (
            SparkOptions(master="local[2]"),
            "ignoring spark.master=local[2]: an Emberkeep job always runs on its cluster",
        ),
        (SparkOptions(deploy_mode="cluster"), "ignoring spark.submit.deployMode=cluster: the driver always runs on a"),
        (SparkOptions(supervise=True), "--supervise is ignored"),
        (SparkOptions(queue="q"), "--queue is ignored"),
        (SparkOptions(conf=("spark.master=yarn",)), "ignoring spark.master=yarn"),
        (SparkOptions(conf=("hive.x=1",)), "ignoring hive.x: not a Spark configuration key"),
    ],
)
def test_what_is_left_out_is_said_once(options: SparkOptions, notice: str) -> None:
    found = spark_configuration(options, {})
    assert len(found.notices) == 1
    assert notice in found.notices[0]
    assert found.values == {}

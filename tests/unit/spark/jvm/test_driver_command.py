"""The command of the driver's JVM: spark-submit's rules, without running spark-submit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.driver_command import (
    SubmitArguments,
    encode_properties,
    jvm_command,
    launch_configuration,
    plan_jvm,
    read_defaults,
    split_submit_arguments,
)
from emberkeep.spark.jvm.driver_jvm import jvm_environment
from emberkeep.spark.model import DriverSettings, JobFiles

_SETTINGS = DriverSettings(
    host="127.0.0.1",
    spark_conf={"spark.a": "conf", "spark.b": "conf", "spark.c": "conf", "spark.master": "yarn"},
    scratch_dir=Path("/scratch"),
    checkpoint_root="file:///checkpoints",
    secret="hush",
    java=JavaRuntime(None, Path("/java/bin/java"), 17),
    app_name="an app",
    driver_memory_mb=900,
    job_files=JobFiles(jars=(Path("/j/one.jar"), Path("/j/two.jar"))),
)
_NOTHING = SubmitArguments({}, ())


def _command(code: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    return jvm_command(plan_jvm(code, _SETTINGS, environ), _SETTINGS)


def test_code_wins_over_submit_arguments_over_conf() -> None:
    arguments = SubmitArguments({"spark.b": "args", "spark.c": "args"}, ())
    conf = launch_configuration({"spark.c": "code", "spark.master": "local[*]"}, arguments, _SETTINGS, {})
    assert (conf["spark.a"], conf["spark.b"], conf["spark.c"]) == ("conf", "args", "code")
    assert conf["spark.app.name"] == "an app"
    assert "spark.master" not in conf, "the embedded Master's address comes later"


def test_pyspark_submit_args_are_taken_apart() -> None:
    arguments = split_submit_arguments(
        "--conf spark.x='a b' --conf=spark.y=1 --driver-memory 3g --packages g:a:1 --name n pyspark-shell"
    )
    assert arguments.conf == {
        "spark.x": "a b",
        "spark.y": "1",
        "spark.driver.memory": "3g",
        "spark.app.name": "n",
    }
    assert arguments.rest == ("--packages", "g:a:1")


def test_submit_args_that_the_jvm_needs_at_its_start_reach_its_command(tmp_path: Path) -> None:
    words = "--driver-class-path /x/pg.jar --driver-java-options '-Da=b -Dc=d' --driver-library-path /n pyspark-shell"
    environ = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": words, "LD_LIBRARY_PATH": "/own"}
    command = _command({}, environ)
    assert "/x/pg.jar" in command[command.index("-cp") + 1].split(":")
    assert {"-Da=b", "-Dc=d"} <= set(command)
    assert not any(word.startswith("--driver") for word in command)
    plan = plan_jvm({}, _SETTINGS, environ)
    assert jvm_environment(environ, plan, _SETTINGS)["LD_LIBRARY_PATH"] == "/own:/n"


def test_site_defaults_are_read_as_java_reads_them(tmp_path: Path) -> None:
    text = "# Caf\u00e9\nspark.driver.extraJavaOptions = -Da=b \\\n   -Dc=d\nspark.e=x\\:y\n"
    (tmp_path / "spark-defaults.conf").write_text(text, "latin-1")
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    assert read_defaults(environ) == {"spark.driver.extraJavaOptions": "-Da=b -Dc=d", "spark.e": "x:y"}
    assert {"-Da=b", "-Dc=d"} <= set(_command({}, environ))
    (tmp_path / "spark-defaults.conf").write_text("spark.e=\\u12")
    with pytest.raises(InvalidSparkConfiguration, match=r"spark-defaults\.conf: .*four hex digits"):
        read_defaults(environ)


@pytest.mark.parametrize("text", ["--conf", "--properties-file x pyspark-shell", "--conf 'spark.x=1"])
def test_submit_args_that_cannot_be_followed_are_refused(text: str) -> None:
    with pytest.raises(InvalidSparkConfiguration, match="PYSPARK_SUBMIT_ARGS"):
        split_submit_arguments(text)


def test_command_follows_the_driver_settings(tmp_path: Path) -> None:
    conf = {
        "spark.driver.memory": "2g",
        "spark.driver.extraClassPath": "/x.jar",
        "spark.driver.extraJavaOptions": "-Dq=1",
    }
    command = _command(conf, {"SPARK_CONF_DIR": str(tmp_path)})
    assert command[0] == "/java/bin/java"
    assert command[2].startswith(f"/x.jar:{tmp_path}:")
    assert "-Xmx2048m" in command
    assert "-Dq=1" in command
    assert command[2].endswith("/jars/*:/j/one.jar:/j/two.jar")
    assert not {"--jars", "--files", "--py-files", "--archives"} & set(command), "Spark would send them to executors"
    assert command[-1] == "pyspark-shell"
    conf["spark.driver.userClassPathFirst"] = "true"
    assert _command(conf, {})[2].startswith("/j/one.jar:/j/two.jar:/x.jar:")


def test_heap_is_the_settings_one_where_no_configuration_says_otherwise(tmp_path: Path) -> None:
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    assert "-Xmx900m" in _command({}, environ)
    (tmp_path / "spark-defaults.conf").write_text("# comment\n\nspark.driver.memory   700m\nspark.z=1 2\nspark.w\n")
    assert read_defaults(environ) == {"spark.driver.memory": "700m", "spark.z": "1 2", "spark.w": ""}
    assert "-Xmx700m" in _command({}, environ)


def test_log_configuration_of_the_user_is_respected(tmp_path: Path) -> None:
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    [ours] = [word for word in _command({}, environ) if "log4j2" in word]
    assert ours.endswith("log4j2-driver.properties")
    (tmp_path / "log4j2.properties").touch()
    [theirs] = [word for word in _command({}, environ) if "log4j2" in word]
    assert theirs == f"-Dlog4j2.configurationFile={tmp_path}/log4j2.properties"


def test_secret_never_stands_on_the_command_line() -> None:
    command = " ".join(_command({"spark.hadoop.fs.s3a.secret.key": "s3key"}, {}))
    assert "hush" not in command
    assert "s3key" not in command


def test_properties_are_escaped_for_java() -> None:
    assert encode_properties({"spark.a": "x=y z:\n€😀"}) == (
        "spark.a=x\\u003dy\\u0020z\\u003a\\u000a\\u20ac\\ud83d\\ude00\n"
    )

"""The command of an executor."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from emberkeep.spark.jvm.executor_command import BACKEND_CLASS, ExecutorLaunch, archive_options, executor_command


@pytest.fixture
def launch(tmp_path: Path) -> ExecutorLaunch:
    return ExecutorLaunch(
        driver_url="spark://CoarseGrainedScheduler@127.0.0.1:4040",
        executor_id="7",
        host="127.0.0.2",
        cores=3,
        heap_mb=768,
        app_id="app-1",
        java=Path("/java/bin/java"),
        java_options=("-Dwho={{APP_ID}}-{{EXECUTOR_ID}}",),
        extra_class_path="/extra/a.jar:/extra/b.jar",
        python="/venv/bin/python",
        environ={"PYTHONPATH": "/inherited", "PYSPARK_GATEWAY_SECRET": "x", "KEPT": "yes"},
        work_dir=tmp_path / "work",
        local_dir=tmp_path / "local",
        temporary_dir=tmp_path / "tmp",
        auth_secret="hush",
    )


def test_arguments_name_driver_address_cores_and_application(launch: ExecutorLaunch) -> None:
    argv, _ = executor_command(launch)
    backend = argv.index(BACKEND_CLASS)
    arguments = dict(zip(argv[backend + 1 :: 2], argv[backend + 2 :: 2], strict=True))
    assert arguments == {
        "--driver-url": "spark://CoarseGrainedScheduler@127.0.0.1:4040",
        "--executor-id": "7",
        "--bind-address": "127.0.0.2",
        "--hostname": "127.0.0.2",
        "--cores": "3",
        "--app-id": "app-1",
        "--resourceProfileId": "0",
    }
    assert argv[0] == "/java/bin/java"
    assert argv[2].startswith("/extra/a.jar:/extra/b.jar:")
    assert argv[2].endswith("/jars/*")
    assert "-Xmx768m" in argv[:backend]
    assert "-Dwho=app-1-7" in argv[:backend]
    assert "-Dspark.authenticate=true" in argv[:backend]


def test_an_executor_announces_its_host_and_binds_another_address(launch: ExecutorLaunch) -> None:
    argv, environment = executor_command(dataclasses.replace(launch, host="fd00::7", bind_host="::"))
    backend = argv.index(BACKEND_CLASS)
    arguments = dict(zip(argv[backend + 1 :: 2], argv[backend + 2 :: 2], strict=True))
    assert (arguments["--bind-address"], arguments["--hostname"]) == ("::", "[fd00::7]")
    assert environment["SPARK_LOCAL_IP"] == "::"


def test_secret_travels_in_the_environment_only(launch: ExecutorLaunch) -> None:
    argv, environment = executor_command(launch)
    assert environment["_SPARK_AUTH_SECRET"] == "hush"
    assert "hush" not in " ".join(argv)
    _, without = executor_command(dataclasses.replace(launch, auth_secret=None))
    assert "_SPARK_AUTH_SECRET" not in without


def test_files_stay_in_own_directories(launch: ExecutorLaunch) -> None:
    argv, environment = executor_command(launch)
    assert f"-Djava.io.tmpdir={launch.temporary_dir}" in argv
    assert environment["TMPDIR"] == str(launch.temporary_dir)
    assert launch.temporary_dir.is_dir()
    assert environment["SPARK_LOCAL_DIRS"] == str(launch.local_dir)
    assert launch.local_dir.is_dir()
    # The job's files come there, whatever they are called.
    assert launch.work_dir.is_dir()
    assert not any(launch.work_dir.iterdir())


def test_jars_of_the_job_come_after_sparks_unless_they_are_to_win(launch: ExecutorLaunch) -> None:
    launch = dataclasses.replace(launch, jars=(Path("/job/a.jar"), Path("/job/b.jar")))
    class_path = executor_command(launch)[0][2]
    assert class_path.startswith("/extra/a.jar:/extra/b.jar:")
    assert class_path.endswith("/jars/*:/job/a.jar:/job/b.jar")
    class_path = executor_command(dataclasses.replace(launch, jars_first=True))[0][2]
    assert class_path.startswith("/job/a.jar:/job/b.jar:/extra/a.jar:/extra/b.jar:")
    assert class_path.endswith("/jars/*")


def test_environment_is_the_one_given_without_the_drivers_own(launch: ExecutorLaunch) -> None:
    _, environment = executor_command(launch)
    assert environment["KEPT"] == "yes"
    assert environment["PYTHONPATH"] == "/inherited"
    assert environment["PYSPARK_PYTHON"] == "/venv/bin/python"
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.2"
    assert "PYSPARK_GATEWAY_SECRET" not in environment


def test_log_goes_by_our_configuration_unless_the_application_has_one(launch: ExecutorLaunch) -> None:
    argv, _ = executor_command(launch)
    [ours] = [option for option in argv if option.startswith("-Dlog4j2.configurationFile=")]
    assert Path(ours.partition("=")[2]).is_file()
    own = "-Dlog4j2.configurationFile=/own.properties"
    argv, _ = executor_command(dataclasses.replace(launch, java_options=(own,)))
    assert [option for option in argv if option.startswith("-Dlog4j2.configurationFile=")] == [own]


def test_class_archive_that_is_gone_is_not_used(tmp_path: Path) -> None:
    assert archive_options(None) == []
    assert archive_options(tmp_path / "gone.jsa") == []
    (tmp_path / "there.jsa").touch()
    assert f"-XX:SharedArchiveFile={tmp_path / 'there.jsa'}" in archive_options(tmp_path / "there.jsa")


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    ("named", "options", "encrypts"),
    [
        ("", ("-Dspark.io.encryption.enabled=true",), True),
        ("", ("-Dspark.io.encryption.enabled=false",), False),
        ("", (), False),
        ("./environment/bin/python", ("-Dspark.io.encryption.enabled=true",), False),  # it may lack the module
    ],
)
def test_python_workers_encrypt_what_they_spill_where_spark_does(
    launch: ExecutorLaunch, named: str, options: tuple[str, ...], encrypts: bool
) -> None:
    argv, _ = executor_command(dataclasses.replace(launch, named_python=named, java_options=options))
    module = "emberkeep.spark.executors.encrypting_python_daemon"
    assert (f"-Dspark.python.daemon.module={module}" in argv) is encrypts


@pytest.mark.req("RES-1")
def test_an_executor_gets_a_file_with_the_addresses_that_it_has(launch: ExecutorLaunch) -> None:
    argv, _ = executor_command(dataclasses.replace(launch, resources={"gpu": ("1", "3")}))
    path = Path(argv[argv.index("--resourcesFile") + 1])
    assert json.loads(path.read_text()) == [
        {"id": {"componentName": "spark.executor", "resourceName": "gpu"}, "addresses": ["1", "3"]}
    ]
    without, _ = executor_command(launch)
    assert "--resourcesFile" not in without

"""Which standby process a job asks for, and that its JVM fits that job."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.options.security import ENCRYPTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.daemons.driver.standby import standby_settings
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.daemons.taskmanager.standby_profiles import driver_profile, executor_profile, followed_job, warmed_state
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobGraph, JobResources
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.driver_command import plan_jvm
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.model import DriverSettings
from emberkeep.spark.standby.warming import StateWarmUp
from emberkeep.taskmanager.state_gateway.standby_copies import FollowedJob

JAVA = JavaRuntime(None, Path("/java/bin/java"), 17)
NOTHING: dict[str, str] = {}


def graph(spark_conf: dict[str, str]) -> JobGraph:
    return JobGraph(
        job_id=JobId("a" * 32),
        name="a job",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="app"),
        arguments=(),
        artefacts=(),
        spark_conf=spark_conf,
        options={},
        working_directory="",
        resources=JobResources(
            driver_memory_mb=1024,
            driver_overhead_mb=384,
            executors=1,
            executor_cores=1,
            executor_memory_mb=1024,
            executor_overhead_mb=384,
        ),
        python="3.11",
        submitted_ms=0,
        idempotency_key="k",
    )


def driver(heap_mb: int = 1024, *options: str) -> StandbyProfile:
    return StandbyProfile(StandbyKind.DRIVER, heap_mb, options)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose folder of Spark's configuration is ``tmp_path``."""
    return {"SPARK_CONF_DIR": str(tmp_path)}


DEFAULT, EXTRA = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
PROPERTIES = "it sets Java properties of its own"
DRIVERS: list[tuple[str, dict[str, str], str, StandbyProfile | str]] = [
    ("nothing", {}, "", driver()),
    ("a heap", {"spark.driver.memory": "2g"}, "", driver(2048)),
    ("a heap of the site", {}, "spark.driver.memory 3g", driver(3072)),
    ("a heap beside that of the site", {"spark.driver.memory": "2g"}, "spark.driver.memory 3g", driver(2048)),
    ("an option", {EXTRA: "-Xss4m"}, "", driver(1024, "-Xss4m")),
    ("an option with spaces", {EXTRA: "-XX:OnError='echo 1' -Xss4m"}, "", driver(1024, "-XX:OnError=echo 1", "-Xss4m")),
    ("options of both keys", {DEFAULT: "-Xss4m", EXTRA: "-Xlog"}, "", driver(1024, "-Xss4m", "-Xlog")),
    ("a default option of the site", {}, f"{DEFAULT} -Xss4m", driver(1024, "-Xss4m")),
    ("an option of the site", {}, f"{EXTRA} -Xss4m", driver(1024, "-Xss4m")),
    ("an option instead of the site's", {EXTRA: "-Xlog"}, f"{EXTRA} -Xss4m", driver(1024, "-Xlog")),
    ("an option besides the site's", {EXTRA: "-Xlog"}, f"{DEFAULT} -Xss4m", driver(1024, "-Xss4m", "-Xlog")),
    ("no option instead of the site's", {EXTRA: ""}, f"{EXTRA} -Xss4m", driver()),
    ("a property", {EXTRA: "-Dpassword=hush"}, "", PROPERTIES),
    ("a property of the site", {}, f"{DEFAULT} -Dpassword=hush", PROPERTIES),
    ("no amount", {"spark.driver.memory": "much"}, "", "spark.driver.memory='much' is not an amount of memory"),
    (
        "more digits than Python reads",
        {"spark.driver.memory": "9" * 5000},
        "",
        f"spark.driver.memory='{'9' * 5000}' is not an amount of memory",
    ),
    ("zeros before a heap", {"spark.driver.memory": f"{'0' * 5000}2g"}, "", driver(2048)),
    ("no heap", {"spark.driver.memory": "0"}, "", "spark.driver.memory='0' is less than 1 MiB"),
    ("a heap as an option", {EXTRA: "-Xmx1g"}, "", f"{EXTRA} must not set -Xmx (-Xmx1g)"),
]


@pytest.mark.parametrize(
    ("conf", "file", "expected"), [case[1:] for case in DRIVERS], ids=[case[0] for case in DRIVERS]
)
def test_the_profile_of_a_driver(
    conf: dict[str, str], file: str, expected: StandbyProfile | str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(file)
    assert driver_profile(graph(conf), environ) == expected


def test_a_file_of_the_site_that_cannot_be_read_makes_cold_starts(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.mkdir()
    assert "spark-defaults.conf cannot be read" in str(driver_profile(graph({}), environ))
    file.rmdir()
    file.write_bytes(b"spark.x=\\u12")
    assert "needs four hex digits" in str(driver_profile(graph({}), environ))
    file.write_bytes(b"# \xff")
    assert isinstance(driver_profile(graph({}), environ), StandbyProfile)


@pytest.mark.parametrize(
    ("conf", "file"),
    [case[1:3] for case in DRIVERS if isinstance(case[3], StandbyProfile)],
    ids=[case[0] for case in DRIVERS if isinstance(case[3], StandbyProfile)],
)
def test_the_jvm_of_a_standby_driver_fits_the_jobs_that_ask_for_its_profile(
    conf: dict[str, str], file: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(file)
    profile = driver_profile(graph(conf), environ)
    assert isinstance(profile, StandbyProfile)
    settings = standby_settings(tmp_path, "10.0.0.1", JAVA, profile.heap_mb, profile.java_options)
    job = DriverSettings(
        host="10.0.0.1",
        spark_conf=conf,
        scratch_dir=tmp_path / "job",
        checkpoint_root="file:///c",
        secret="hush",
        java=JAVA,
        app_name="a job",
        driver_memory_mb=1024,
    )
    standby = plan_jvm(NOTHING, settings, environ).shape
    assert standby.differences(plan_jvm(NOTHING, job, environ).shape) == ()
    assert standby.heap_mb == profile.heap_mb, "the pool counts with this"


LAUNCH = ExecutorLaunch(
    driver_url="spark://driver",
    executor_id="7",
    host="127.0.0.1",
    cores=1,
    heap_mb=768,
    app_id="app-1",
    java=JAVA.executable,
    java_options=("-Djava.net.preferIPv6Addresses=false", "-Dspark.driver.port=7077"),
    extra_class_path="",
    python="/venv/bin/python",
    environ={},
    work_dir=Path("/work"),
    local_dir=Path("/local"),
    temporary_dir=Path("/tmp/x"),
    auth_secret="hush",
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), StandbyProfile(StandbyKind.EXECUTOR, 768)),
        (("-Xss4m", "-XX:+UseSerialGC"), StandbyProfile(StandbyKind.EXECUTOR, 768, ("-Xss4m", "-XX:+UseSerialGC"))),
        (("-Dpassword=hush",), PROPERTIES),
        (("-Dlog4j2.configurationFile=/own",), PROPERTIES),
        (("-Xlog:gc:/logs/{{APP_ID}}.log",), "its Java options name the application or the executor"),
        (("-Xlog:gc:/logs/{{EXECUTOR_ID}}.log",), "its Java options name the application or the executor"),
    ],
)
def test_the_profile_of_an_executor(options: tuple[str, ...], expected: StandbyProfile | str) -> None:
    launch = dataclasses.replace(LAUNCH, java_options=(*LAUNCH.java_options, *options))
    assert executor_profile(launch) == expected


ALICE = OsUser("alice", 1001, 1001, (1001,), "/home/alice", "/bin/sh")
FOLLOWED = FollowedJob(JobId("a" * 32), ("/checkpoints/a",))


@pytest.mark.parametrize(
    ("here", "of_the_job", "users", "expected"),
    [
        ("true", {}, {}, FOLLOWED),
        ("true", {}, {"*": ALICE}, dataclasses.replace(FOLLOWED, user_id=1001)),
        ("true", {}, {"team": ALICE}, None),
        ("true", {LOCAL_RECOVERY.key: "false"}, {}, None),
        ("false", {}, {}, None),
    ],
)
def test_the_state_is_copied_of_jobs_that_have_local_state_with_the_rights_of_their_users(
    here: str, of_the_job: dict[str, str], users: dict[str, OsUser], expected: FollowedJob | None
) -> None:
    configuration = Configuration().with_texts({LOCAL_RECOVERY.key: here}, "test")
    wanted = msgspec.structs.replace(graph({}), options=of_the_job)
    assert followed_job(wanted, FOLLOWED.checkpoints, configuration, JobUsers(users, "token")) == expected


def test_warm_ups_use_a_state_gateway_like_that_of_their_task_manager() -> None:
    assert warmed_state(Configuration()) is StateWarmUp.NONE
    on = {LOCAL_RECOVERY.key: "true"}
    assert warmed_state(Configuration().with_texts(on, "test")) is StateWarmUp.ENCRYPTED
    assert warmed_state(Configuration().with_texts({**on, ENCRYPTION.key: "none"}, "test")) is StateWarmUp.PLAIN

"""Jobs' processes do not inherit the secrets of their task manager, and nobody else sees what jobs checkpoint."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.configuration.layout import TlsFiles, WorkingDirectory
from emberkeep.base.configuration.options.task_managers import JOB_ENVIRONMENT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.daemons.local import task_manager_configuration
from emberkeep.daemons.records.driver_spec import read_spec
from emberkeep.daemons.taskmanager.job_environment import INHERITED
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode, ProcessStarts
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.support.certificates import cluster_tls
from tests.unit.taskmanager.agent_bench import start_driver

PASSWORD = "correct-horse"
AUTHORIZATION = "high-availability.zookeeper.client.authorization"
CONFIGURATION = Configuration().with_texts({AUTHORIZATION: f"digest:emberkeep:{PASSWORD}"}, "the test")


def node(directory: Path, configuration: Configuration, tls: TlsFiles | None = None) -> ProcessStarts:
    root = WorkingDirectory(directory / "node")
    java = JavaRuntime(None, directory / "java", 17)
    java.executable.touch()
    launch = LaunchNode("tm", "127.0.0.1", root, directory / "token", java, configuration, tls)
    return ProcessStarts(launch, ProcessPlaces(root), None)


def environment_of_a_driver(starts: ProcessStarts) -> dict[str, str]:
    request = start_driver()
    return dict(starts.driver(DriverKey(job_id=request.graph.job_id, attempt=1), request, ()).environ)


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessStarts:
    monkeypatch.setenv("EMBERKEEP_HIGH_AVAILABILITY__ZOOKEEPER__CLIENT__AUTHORIZATION", f"digest:emberkeep:{PASSWORD}")
    monkeypatch.setenv("SPARK_ZK_PASS", PASSWORD)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dzookeeper.auth=digest:emberkeep:{PASSWORD}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the jobs")
    return node(tmp_path, CONFIGURATION)


@pytest.mark.req("SEC-13")
def test_a_driver_gets_no_secret_of_zookeeper(starts: ProcessStarts) -> None:
    request = start_driver()
    started = starts.driver(DriverKey(job_id=request.graph.job_id, attempt=1), request, ())
    spec = Path(started.argv[-1])
    assert PASSWORD not in str(started.environ)
    assert PASSWORD.encode() not in spec.read_bytes()
    assert AUTHORIZATION not in read_spec(spec).options
    assert started.environ["AWS_SECRET_ACCESS_KEY"] == "of the jobs"  # object stores need it


@pytest.mark.req("SEC-13")
def test_a_driver_gets_neither_the_clusters_token_nor_the_nodes_key(tmp_path: Path) -> None:
    token = load_or_create_token(tmp_path / "token")
    tls = cluster_tls(tmp_path / "tls").files
    request = start_driver()
    started = node(tmp_path, CONFIGURATION, tls).driver(DriverKey(job_id=request.graph.job_id, attempt=1), request, ())
    spec = read_spec(Path(started.argv[-1]))
    driver, own_tls = Path(started.argv[-1]).parent, spec.tls
    key = re.findall(r"(?s)PRIVATE KEY-+\n(.+?)-", Path(tls.key).read_text())[0]

    assert own_tls is not None
    assert {Path(path).parent for path in (spec.token_file, own_tls.certificate, own_tls.key, own_tls.ca)} == {driver}
    written = "".join(path.read_text() for path in driver.rglob("*") if path.is_file()) + str(started)
    assert not [secret for secret in (token, key, str(tmp_path / "token"), tls.key) if secret in written]


@pytest.mark.req("SEC-13")
def test_an_executor_gets_no_secret_of_zookeeper(starts: ProcessStarts) -> None:
    request = StartExecutor(
        job_id=JobId("a" * 32),
        attempt=1,
        allocation_id=AllocationId("b" * 32),
        executor_id=ExecutorId("1"),
        driver_url="spark://driver",
        app_id="app-1",
        cores=1,
        heap_mb=100,
        java_options=(),
        extra_class_path="",
        environ={},
        auth_secret="",
        python_path=(),
    )
    key = ExecutorKey(
        job_id=request.job_id, attempt=1, allocation_id=request.allocation_id, executor_id=request.executor_id
    )
    assert PASSWORD not in str(starts.executor(key, request, ())[0].environ)


@pytest.mark.req("SEC-13")
def test_a_password_in_the_file_of_zookeepers_credentials_is_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_ZK_PASS", PASSWORD)
    credentials = tmp_path / "credentials"
    credentials.touch(0o600)
    credentials.write_text(f"digest:emberkeep:{PASSWORD}\n")
    configuration = Configuration().with_texts({f"{AUTHORIZATION}-file": str(credentials)}, "the test")
    assert PASSWORD not in str(environment_of_a_driver(node(tmp_path, configuration)))


@pytest.mark.req("SEC-13")
def test_jobs_inherit_what_is_listed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"LC_ALL": "C.UTF-8", "SPARK_HOME": "/spark", "HADOOP_CONF_DIR": "/hadoop", "TZ": "UTC"}
    others = {
        "VAULT_TOKEN": "s.marker",
        "SSH_AUTH_SOCK": "/agent",
        "DATABASE_URL": "postgres://",
        "TEAM_NAME": "flights",
    }
    for name, value in {**usual, **others}.items():
        monkeypatch.setenv(name, value)

    def inherited(names: str) -> dict[str, str]:
        configuration = Configuration().with_texts({JOB_ENVIRONMENT.key: names}, "the test")
        environ = environment_of_a_driver(node(tmp_path, configuration))
        return {name: value for name, value in environ.items() if name in {**usual, **others}}

    assert inherited("") == usual
    assert inherited("DATABASE_URL, TEAM_*") == {**usual, "DATABASE_URL": "postgres://", "TEAM_NAME": "flights"}
    assert inherited("*") == {**usual, **others}


@pytest.mark.req("SEC-13")
def test_jobs_of_a_cluster_that_a_command_starts_inherit_the_commands_environment() -> None:
    assert task_manager_configuration(Configuration(), "here:1")[JOB_ENVIRONMENT] == "*"
    chosen = Configuration().with_texts({JOB_ENVIRONMENT.key: "TEAM_NAME"}, "the test")
    assert task_manager_configuration(chosen, "here:1")[JOB_ENVIRONMENT] == "TEAM_NAME"


def test_the_list_in_the_documentation_is_that_of_the_code() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "security.md").read_text("utf-8")
    section = page.partition("## What jobs inherit")[2].partition("\n## ")[0]
    assert [name for name in INHERITED if f"`{name}`" not in section] == []


@pytest.mark.req("SEC-5")
def test_other_users_see_nothing_of_a_checkpoint(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = DirectoryState(tmp_path / "job")
        state.make_directory("query/state")
        state.rename("query", "moved", overwrite=False)
    finally:
        os.umask(before)
    made = [tmp_path / "job", tmp_path / "job" / "moved", tmp_path / "job" / "moved" / "state"]
    assert {path: path.stat().st_mode & 0o777 for path in made} == dict.fromkeys(made, 0o700)

"""Jobs' processes do not inherit the secrets of their task manager, and nobody else sees what jobs checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emberkeep.adapters.state.directory import DirectoryState
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.daemons.records.driver_spec import read_spec
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.daemons.taskmanager.process_starts import LaunchNode, ProcessStarts
from emberkeep.protocol.messages import StartExecutor
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.unit.taskmanager.agent_bench import start_driver

PASSWORD = "correct-horse"
AUTHORIZATION = "high-availability.zookeeper.client.authorization"
CONFIGURATION = Configuration().with_texts({AUTHORIZATION: f"digest:emberkeep:{PASSWORD}"}, "the test")


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessStarts:
    monkeypatch.setenv("EMBERKEEP_HIGH_AVAILABILITY__ZOOKEEPER__CLIENT__AUTHORIZATION", f"digest:emberkeep:{PASSWORD}")
    monkeypatch.setenv("ZK_PASS", PASSWORD)
    monkeypatch.setenv("JVMFLAGS", f"-Dzookeeper.auth=digest:emberkeep:{PASSWORD}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the jobs")
    root = WorkingDirectory(tmp_path / "node")
    java = JavaRuntime(None, tmp_path / "java", 17)
    java.executable.touch()
    node = LaunchNode("tm", "127.0.0.1", root, tmp_path / "token", java, CONFIGURATION)
    return ProcessStarts(node, ProcessPlaces(root), None)


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
    assert PASSWORD not in str(starts.executor(key, request, ()).environ)


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

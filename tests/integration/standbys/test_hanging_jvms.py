"""A real JVM that hangs while a job takes it costs the job a cold start. The warm-ups are left out: they take long."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.base.processes.process_identity import identify
from emberkeep.daemons.driver.standby import standby_settings
from emberkeep.daemons.taskmanager import standby_starts
from emberkeep.daemons.taskmanager.standby_starts import StandbyExecutorProcess, StandbyPlace
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.java import JavaRuntime, find_java
from emberkeep.spark.jvm.driver_command import plan_jvm
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.standby import driver_jvm
from emberkeep.spark.standby.driver_jvm import StandbyJvm, start_standby_jvm
from emberkeep.spark.standby.native_calls import JAVA_OF_STANDBYS
from emberkeep.spark.standby.warming import StateWarmUp

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEAP_MB = 256


@pytest.fixture
def java() -> JavaRuntime:
    found = find_java(os.environ)
    if found.major != JAVA_OF_STANDBYS:
        pytest.skip(f"standby processes need Java {JAVA_OF_STANDBYS}")
    return found


@pytest.fixture(autouse=True)
def without_warm_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave_cold(*_: object, for_driver: bool) -> None:
        del for_driver

    for module in (driver_jvm, standby_starts):
        monkeypatch.setattr(module, "warm", leave_cold)


@pytest.fixture
def standby(tmp_path: Path, java: JavaRuntime, class_archive: Path) -> Iterator[StandbyJvm]:
    settings = standby_settings(tmp_path, "127.0.0.1", java, HEAP_MB, ())
    settings = dataclasses.replace(settings, class_archive=class_archive)
    standby = start_standby_jvm(settings, tmp_path / "warm-up", StateWarmUp.NONE)
    yield standby
    if standby.pid is not None:
        os.kill(standby.pid, signal.SIGKILL)


def test_a_driver_whose_warm_jvm_hangs_ends_it_and_starts_a_cold_one(
    standby: StandbyJvm, tmp_path: Path, java: JavaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_jvm, "_TAKE_SECONDS", 0.5)
    settings = standby_settings(tmp_path / "job", "127.0.0.1", java, HEAP_MB, ())
    assert standby.pid is not None
    hanging = identify(standby.pid)
    assert hanging is not None
    os.kill(hanging.pid, signal.SIGSTOP)
    assert standby.take(plan_jvm({}, settings, os.environ), settings) is None
    assert standby.why_cold == "its warm JVM answered too late"
    assert identify(hanging.pid) != hanging, "it has ended before another one starts"


def test_an_executor_that_hangs_while_it_is_taken_is_given_up(
    tmp_path: Path, java: JavaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task manager then kills it, as it kills every process that cannot become a job's."""
    monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", 0.5)
    place = StandbyPlace("standby-executor-1", tmp_path, "127.0.0.1", java, dict(os.environ))
    process = StandbyExecutorProcess(place, StandbyProfile(StandbyKind.EXECUTOR, HEAP_MB))
    request = process.start_request()
    assert request.stdin is not None
    with place.stdout.open("wb") as output, place.stderr.open("wb") as errors:
        jvm = subprocess.Popen(
            list(request.argv),
            env=dict(request.environ),
            cwd=request.directory,
            stdin=request.stdin,
            stdout=output,
            stderr=errors,
        )

    async def freeze_and_take() -> str:
        await process.warmed(jvm.pid)
        jvm.send_signal(signal.SIGSTOP)
        try:
            await process.become(order(request), launch(java, tmp_path))
        except StandbyFailed as error:
            return error.message
        finally:
            jvm.kill()  # what waits for its answer in another thread ends with it
        return "it was taken"

    try:
        assert asyncio.run(freeze_and_take()) == "the standby executor does not answer"
    finally:
        jvm.kill()
        jvm.wait()
        process.close()


def order(request: StartRequest) -> StartRequest:
    return dataclasses.replace(request, name="executor", stdin=None)


def launch(java: JavaRuntime, directory: Path) -> ExecutorLaunch:
    return ExecutorLaunch(
        driver_url="spark://CoarseGrainedScheduler@127.0.0.1:1",
        executor_id="1",
        host="127.0.0.1",
        cores=1,
        heap_mb=HEAP_MB,
        app_id="app-1",
        java=java.executable,
        java_options=(),
        extra_class_path="",
        python=shutil.which("python3") or "python3",
        environ=dict(os.environ),
        work_dir=directory,
        local_dir=directory,
        temporary_dir=directory / "tmp",
        auth_secret=None,
    )

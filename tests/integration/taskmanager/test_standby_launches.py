"""A launcher whose processes come from its standbys: one process for each attempt, one report of its end, nothing left.

Small programs stand for standby processes, and a script for Java.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.adapters.processes.supervisor import ProcessSupervisor
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.process_identity import identify
from emberkeep.daemons.records.late_variables import VARIABLES_FILE, read_late_variables
from emberkeep.daemons.taskmanager import standby_starts, standbys
from emberkeep.daemons.taskmanager.launching.launcher import ProcessLauncher
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode
from emberkeep.daemons.taskmanager.process_places import process_name
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobGraph, JobResources
from emberkeep.protocol.messages.task_managers import StartDriver
from emberkeep.slots.model import ProcessStart
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.state_gateway_conf import GATEWAY_VARIABLE
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import DriverKey
from tests.integration.taskmanager import test_launcher
from tests.integration.taskmanager.standby_programs import SmallStandby, small_place
from tests.integration.taskmanager.test_launcher import JOB, Gateway, key_of, until
from tests.support.kernel.children import reap

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

EXECUTOR = StandbyProfile(StandbyKind.EXECUTOR, 100)
DRIVER = StandbyProfile(StandbyKind.DRIVER, 1024)
PLENTY = 100_000  # MiB


class Bench(test_launcher.Bench):
    """A launcher that keeps one standby driver and one standby executor. ``how``: how these behave."""

    how = "runs"

    def _launcher(self, supervisor: ProcessSupervisor, gateway: str | None = None) -> ProcessLauncher:
        self.token.write_text("t" * 32)
        self.supervisor = supervisor
        profiles = {StandbyKind.EXECUTOR: EXECUTOR, StandbyKind.DRIVER: DRIVER}
        self.pool = StandbyPool(dict.fromkeys(profiles, 1), profiles)
        launcher = ProcessLauncher(
            LaunchNode(
                "tm", "127.0.0.1", self.directory, self.token, JavaRuntime(None, self.java, 17), Configuration()
            ),
            supervisor,
            LibraryCache(self.blobs, self.archives, retention=3600.0),
            None if gateway is None else Gateway(gateway),
            self.pool,
            lambda name, directory, profile: SmallStandby(
                small_place(name, directory, {"PATH": os.environ["PATH"]}), profile, self.how
            ),
        )
        launcher.on_exit(self.exits.append)
        launcher.standbys.free_mb = lambda: PLENTY
        return launcher

    async def ready(self, profile: StandbyProfile = EXECUTOR) -> None:
        self.launcher.standbys.begin()
        await until(lambda: self.pool.ready(profile))

    def standby_directories(self) -> list[Path]:
        return list(self.directory.standbys.iterdir()) if self.directory.standbys.exists() else []

    def record(self) -> Path:
        return self.directory.attempt(JOB, 1) / "executors" / "1-bbbbbbbb" / VARIABLES_FILE


@contextlib.asynccontextmanager
async def life(directory: Path, gateway: str | None = None) -> AsyncIterator[Bench]:
    """Run a task manager's launcher with its standbys, and leave what it has started running as a task manager does."""
    supervisor = ProcessSupervisor(directory / "records", linger=0.5)
    bench = Bench(directory, supervisor)
    await bench.next_life(supervisor, gateway)
    watching = asyncio.create_task(supervisor.run())
    keeping = asyncio.create_task(bench.launcher.standbys.run())
    try:
        yield bench
        await bench.launcher.leave()
        assert not watching.done(), "the supervisor has failed"
        assert not keeping.done(), "the pool has failed"
    finally:
        for task in (keeping, watching):
            task.cancel()
        await asyncio.wait({keeping, watching})
        await supervisor.close()


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", test_launcher.DEADLINE)
    async with life(tmp_path) as bench:
        yield bench
        await bench.launcher.kill_all()


async def test_an_executor_takes_the_standby_and_its_directory_goes_with_it(bench: Bench) -> None:
    await bench.ready()
    started = await bench.launcher.start_executor(bench.request())
    assert started.start is ProcessStart.HOT
    await until(lambda: "began in" in bench.log())
    assert bench.users() == 4
    assert len(bench.standby_directories()) == 2, "its own, and that of the driver"
    assert read_late_variables(bench.record()) == {}
    assert bench.launcher.is_live(JOB, 1, "1")
    await bench.launcher.stop(key_of(bench.request()), 0.0)
    assert [(end.key, end.exit_code) for end in bench.exits] == [(key_of(bench.request()), -9)]
    assert identify(started.pid) is None
    assert bench.users() == 0
    await until(lambda: len(bench.standby_directories()) == 1)


@pytest.mark.parametrize("how", ["dies", "hangs", "speaks nonsense"])
async def test_after_a_failed_take_exactly_one_process_runs_the_attempt(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "hangs":
        monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", 0.5)
    bench.how = how
    await bench.ready()
    started = await bench.launcher.start_executor(bench.request())
    assert started.start is ProcessStart.COLD
    assert "failed while it was taken" in started.why_cold
    await until(lambda: "ready" in bench.log("1", "stderr"))
    assert "began in" not in bench.log()
    name = process_name(key_of(bench.request()))
    assert {each for each in bench.supervisor.running() if not each.startswith("standby-driver")} == {name}
    assert read_late_variables(bench.record()) is None
    assert bench.exits == []
    await bench.launcher.stop(key_of(bench.request()), 0.0)
    assert len(bench.exits) == 1


async def test_of_two_executors_at_once_one_gets_the_standby(bench: Bench) -> None:
    await bench.ready()
    both = [bench.launcher.start_executor(bench.request(executor)) for executor in ("1", "2")]
    started = await asyncio.gather(*both)
    assert sorted(each.start.value for each in started) == sorted([ProcessStart.HOT.value, ProcessStart.COLD.value])
    assert started[0].pid != started[1].pid


@pytest.mark.parametrize("cancel", [False, True], ids=["stopped", "cancelled"])
async def test_a_driver_that_is_stopped_while_it_takes_a_standby_does_not_start(
    bench: Bench, cancel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby hangs, so that the take lasts until the driver is stopped."""
    monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", 3600.0)
    bench.how = "hangs"
    await bench.ready(DRIVER)
    starting = asyncio.create_task(bench.launcher.start_driver(driver_request()))
    name = f"driver-{JOB}-1"
    await until(lambda: name in bench.supervisor.running())
    if cancel:
        starting.cancel()
    else:
        stops = [bench.launcher.stop(DriverKey(job_id=JOB, attempt=1), 3600.0) for _ in range(2)]
        await asyncio.gather(*stops)
    assert not cancel or not starting.done()
    with pytest.raises(asyncio.CancelledError if cancel else Fatal):
        await starting
    assert not any(each.startswith("driver-") for each in bench.supervisor.running())
    assert not bench.launcher.live_jobs()
    assert bench.exits == []


async def test_a_stop_at_any_moment_of_a_take_leaves_no_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbys, "STARTING_SECONDS", 0.0)
    for attempt in range(1, 9):
        await bench.ready(DRIVER)
        starting = asyncio.create_task(bench.launcher.start_driver(driver_request(attempt)))
        for _ in range(attempt):
            await asyncio.sleep(0.001)
        await bench.launcher.stop(DriverKey(job_id=JOB, attempt=attempt), 0.0)
        with contextlib.suppress(Fatal):
            await starting
            await bench.launcher.stop(DriverKey(job_id=JOB, attempt=attempt), 0.0)  # it had not begun to take
        assert not any(each.startswith("driver-") for each in bench.supervisor.running())


async def test_a_task_manager_that_ends_leaves_a_taken_process_to_the_next_one(tmp_path: Path) -> None:
    async with life(tmp_path, "127.0.0.1:7") as bench:
        pid = await take_an_executor(bench)
        (directory,) = [path for path in bench.standby_directories() if "executor" in path.name]
        record = bench.record()
    assert read_late_variables(record) == {GATEWAY_VARIABLE: "127.0.0.1:7"}
    assert identify(pid) is not None

    async with life(tmp_path, "127.0.0.1:7") as bench:
        key = key_of(bench.request())
        adopted = await bench.launcher.adopt({key}, frozenset(), {JOB})
        assert adopted.alive == {key: pid}
        assert bench.launcher.is_live(JOB, 1, "1")
        assert directory.exists()
        await bench.launcher.stop(key, 0.0)
        assert [(end.key, end.exit_code) for end in bench.exits] == [(key, None)]
        await until(lambda: not directory.exists())
    reap(pid)


@pytest.mark.req("SAFE-17")
@pytest.mark.parametrize("after", ["127.0.0.1:8", None, "damaged"])
async def test_a_taken_executor_goes_on_only_with_its_state_gateway(tmp_path: Path, after: str | None) -> None:
    async with life(tmp_path, "127.0.0.1:7") as bench:
        pid = await take_an_executor(bench)
        if after == "damaged":
            bench.record().write_bytes(b"nothing that a task manager has written")
    async with life(tmp_path, "127.0.0.1:7" if after == "damaged" else after) as bench:
        adopted = await bench.launcher.adopt({key_of(bench.request())}, frozenset(), {JOB})
        assert adopted.alive == {}
        assert identify(pid) is None
    reap(pid)


async def test_standbys_of_a_killed_task_manager_are_ended_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(_: ProcessLauncher) -> None:
        """End as a task manager that is killed: without a last deed."""

    async with life(tmp_path) as first:
        await first.ready()
        await first.ready(DRIVER)
        families = first.supervisor._watch.families.values()
        pids = [family.leader.pid for family in families if family.leader is not None]
        left = first.standby_directories()
        monkeypatch.setattr(ProcessLauncher, "leave", killed)
    monkeypatch.undo()
    assert [pid for pid in pids if identify(pid) is None] == [], "they go on, as this process does"
    async with life(tmp_path) as bench:
        adopted = await bench.launcher.adopt(frozenset(), frozenset(), set())
        assert adopted.alive == {}
        assert [pid for pid in pids if identify(pid) is not None] == []
        assert not set(left) & set(bench.standby_directories())
        await bench.ready()
    for kept in first.launcher.standbys._kept.values():
        assert kept.process is not None
        kept.process.close()
    reap(*pids)


async def take_an_executor(bench: Bench) -> int:
    await bench.ready()
    started = await bench.launcher.start_executor(bench.request())
    assert started.start is ProcessStart.HOT
    return started.pid


def driver_request(attempt: int = 1) -> StartDriver:
    graph = JobGraph(
        job_id=JOB,
        name="a job",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="app"),
        arguments=(),
        artefacts=(),
        spark_conf={},
        options={},
        working_directory="",
        resources=JobResources(
            driver_memory_mb=DRIVER.heap_mb,
            driver_overhead_mb=384,
            executors=1,
            executor_cores=1,
            executor_memory_mb=100,
            executor_overhead_mb=10,
        ),
        python="3.11",
        submitted_ms=0,
        idempotency_key="k",
    )
    return StartDriver(
        epoch=1, graph=graph, attempt=attempt, memory_mb=1408, job_manager="127.0.0.1:1", checkpoint_root="file:///c"
    )

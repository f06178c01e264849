"""A launcher's reserved standbys: they get what their job needs, become its driver, and end without it.

Small programs stand for standby processes; in the last tests the real program runs, without a JVM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.processes.process_identity import identify
from emberkeep.daemons.records.standby_messages import (
    Confirm,
    Import,
    Imported,
    Ready,
    Take,
    Taken,
    encode,
    receive,
)
from emberkeep.daemons.taskmanager import standby_starts, standbys
from emberkeep.protocol.messages.task_manager_reports import ReservedStandbyReport
from emberkeep.protocol.messages.task_managers import ReservedStandby
from emberkeep.slots.model import ProcessStart
from emberkeep.slots.standbys import back_off
from emberkeep.taskmanager.ports import DriverKey
from tests.integration.taskmanager.test_launcher import DEADLINE, JOB, until
from tests.integration.taskmanager.test_standby_launches import Bench, driver_request, life

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

READY = (ReservedStandbyReport(job_id=JOB),)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(standby_starts, "_ANSWER_SECONDS", DEADLINE)
    monkeypatch.setattr(standbys, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(back_off, "FIRST_PAUSE", 0.1)
    async with life(tmp_path) as bench:
        bench.launcher.standbys.begin()
        yield bench
        await bench.launcher.kill_all()


def reserve(bench: Bench, **conf: str) -> None:
    """Reserve a standby for the job, which has files."""
    graph = msgspec.structs.replace(driver_request().graph, artefacts=bench.artefacts, spark_conf=conf)
    bench.launcher.reserve_standbys((ReservedStandby(job_id=JOB, graph=graph),))


async def is_ready(bench: Bench) -> None:
    await until(lambda: bench.launcher.standbys.report_reserved() == READY)


def of_the_job(bench: Bench) -> set[int]:
    """The pids of the processes that are reserved for the job."""
    ids = {each.standby_id for each in bench.pool.standbys() if each.job_id == JOB}
    names = {kept.name for kept in bench.launcher.standbys._kept.values() if kept.standby_id in ids}
    families = bench.supervisor._watch.families.values()
    return {family.leader.pid for family in families if family.name in names and family.leader is not None}


async def test_the_jobs_driver_takes_it_and_its_files_are_the_drivers_then(bench: Bench) -> None:
    reserve(bench)
    await is_ready(bench)
    assert bench.users() == 4, "its files are on the node"
    (pid,) = of_the_job(bench)
    bench.launcher.reserve_standbys((ReservedStandby(job_id=JOB),))
    assert of_the_job(bench) == {pid}, "the graph comes once"
    request = msgspec.structs.replace(driver_request(), graph=bench.launcher.standbys.reserved_jobs[JOB].graph)
    started = await bench.launcher.start_driver(request)
    assert (started.pid, started.start) == (pid, ProcessStart.HOT)
    bench.launcher.reserve_standbys(())
    await until(lambda: not of_the_job(bench))
    await until(lambda: bench.users() == 4)
    await bench.launcher.stop(DriverKey(job_id=JOB, attempt=1), 0.0)
    assert bench.users() == 0


async def test_it_ends_when_its_job_needs_it_no_longer(bench: Bench) -> None:
    reserve(bench)
    await is_ready(bench)
    (pid,) = of_the_job(bench)
    bench.launcher.reserve_standbys(())
    await until(lambda: identify(pid) is None)
    await until(lambda: bench.users() == 0)
    assert bench.launcher.standbys.report_reserved() == ()


async def test_a_job_that_comes_without_its_graph_waits_for_it(bench: Bench) -> None:
    bench.launcher.reserve_standbys((ReservedStandby(job_id=JOB),))
    assert bench.launcher.standbys.report_reserved() == ()


@pytest.mark.parametrize("how", ["dies of an import", "hangs in an import"])
async def test_imports_that_fail_cost_one_process(bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_starts, "_IMPORT_SECONDS", 0.5)
    bench.how = how
    reserve(bench)
    failing = "the last one has failed; see the task manager's log"
    await until(
        lambda: bench.launcher.standbys.report_reserved() == (ReservedStandbyReport(job_id=JOB, why_not=failing),)
    )
    await is_ready(bench)
    assert bench.users() == 4, "of the second one, which imports nothing"


async def test_a_job_that_no_standby_can_serve_says_why(bench: Bench) -> None:
    reserve(bench, **{"spark.driver.extraJavaOptions": "-Dsecret=1"})
    (report,) = bench.launcher.standbys.report_reserved()
    assert report.why_not == "it sets Java properties of its own"
    assert not of_the_job(bench)


async def test_a_job_that_runs_as_another_user_has_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.launcher._users, "of", lambda _: object())
    reserve(bench)
    (report,) = bench.launcher.standbys.report_reserved()
    assert report.why_not == "the job runs as another user"
    assert not of_the_job(bench)


async def test_files_that_do_not_come_keep_nobody_waiting(bench: Bench) -> None:
    """The task manager ends while they are fetched."""
    bench.blobs.open.clear()
    reserve(bench)
    async with asyncio.timeout(DEADLINE):
        await bench.blobs.asked.wait()
        (pid,) = of_the_job(bench)
        await bench.launcher.leave()
    assert identify(pid) is None
    assert bench.users() == 0


async def test_files_that_cannot_be_fetched_leave_it_warm(bench: Bench) -> None:
    bench.blobs.holders.clear()
    for path in bench.blobs._directory.iterdir():
        path.unlink()
    reserve(bench)
    await is_ready(bench)
    assert bench.users() == 0


# --- the real program -------------------------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys
from types import SimpleNamespace
from emberkeep.daemons.driver import standby
standby._prepare = lambda *_: SimpleNamespace(pid=None)
def attempt(arguments, jvm):
    seen = {"environ": dict(os.environ), "modules": [name for name in sys.modules if name.startswith("ek_")]}
    with open(arguments[0], "w") as file:
        json.dump(seen, file)
    return 7
standby.run_attempt = attempt
sys.exit(standby.main([str(os.getppid()), "/", "127.0.0.1", "1024", "none"]))
"""


@contextlib.contextmanager
def program(packages: Path) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """The standby driver's program with these packages installed, and our end of its channel."""
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE)
    environ = {**os.environ, "PYTHONPATH": str(packages), "EMBERKEEP_PROCESS": "standby@1"}
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environ,
                text=True,
            )
        try:
            yield process, ours
        finally:
            process.kill()
            process.communicate()


def test_the_program_imports_before_it_is_taken_and_runs_nothing_of_the_job(tmp_path: Path) -> None:
    packages, job = tmp_path / "site", tmp_path / "job"
    packages.mkdir()
    job.mkdir()
    (packages / "ek_lib.py").write_text(
        "import os\nos.environ.update(EK_ADDED='1', JOB='of the package')\nprint('hello')"
    )
    (job / "script.py").write_text("import ek_lib, ek_own")
    (job / "ek_own.py").write_text("import ek_lib")
    with program(packages) as (process, ours):
        assert isinstance(receive(ours), Ready)
        ours.sendall(encode(Import(script=str(job / "script.py"), module="", places=(str(job),))))
        assert receive(ours) == Imported(packages=1)
        result = tmp_path / "result"
        environ = {"JOB": "a", "PATH": os.environ["PATH"]}
        ours.sendall(encode(Take(environ=environ, directory=str(tmp_path), arguments=(str(result),))))
        assert receive(ours) == Taken()
        ours.sendall(encode(Confirm()))
        assert process.wait(DEADLINE) == 7
    seen = json.loads(result.read_text())
    assert seen["modules"] == ["ek_lib"]
    assert {name: seen["environ"].get(name) for name in ("JOB", "EK_ADDED")} == {"JOB": "a", "EK_ADDED": "1"}


def test_the_program_ends_rather_than_keep_what_the_job_has_itself(tmp_path: Path) -> None:
    packages, job = tmp_path / "site", tmp_path / "job"
    packages.mkdir()
    job.mkdir()
    (packages / "ek_lib.py").write_text("import ek_own")
    (packages / "ek_own.py").write_text("")
    (job / "script.py").write_text("import ek_lib")
    (job / "ek_own.py").write_text("")
    with program(packages) as (process, ours):
        assert isinstance(receive(ours), Ready)
        ours.sendall(encode(Import(script=str(job / "script.py"), module="", places=(str(job),))))
        assert receive(ours) is None
        assert process.wait(DEADLINE) == 1
        assert process.stderr is not None
        assert "no reserved standby: a package imports 'ek_own'" in process.stderr.read()

"""How a driver has ended lies on its node's disk: it is found there in every state of the task manager's own record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from emberkeep.adapters.processes.leftovers import Leftover
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files import hostile
from emberkeep.base.files.durable import write_record
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, OUTCOME_KIND, OUTCOME_VERSION, write_outcome
from emberkeep.daemons.taskmanager.launching import ends
from emberkeep.daemons.taskmanager.launching.launcher import ProcessLauncher
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import DriverKey, ProcessExit

pytestmark = [pytest.mark.req("SAFE-9"), pytest.mark.anyio]

SUCCESS = AttemptOutcome(exit_code=0)
FIRST = DriverKey(job_id=JobId("a" * 32), attempt=1)
SECOND = DriverKey(job_id=JobId("a" * 32), attempt=2)
OTHER = DriverKey(job_id=JobId("b" * 32), attempt=7)
NO_JOBS: frozenset[JobId] = frozenset()


def write_newer_outcome(path: Path) -> None:
    write_record(path, OUTCOME_KIND, OUTCOME_VERSION + 1, b"{}")


class OneProcess:
    """A supervisor whose earlier life has left ``process``, if any; the test ends it."""

    def __init__(self, process: str = "") -> None:
        own = own_identity()
        members = {own.pid: own.start_ticks}
        self.left = [Leftover(process, f"{process}@1", own, members)] if process else []
        self.end: Callable[[Exit], None] = lambda _: None

    async def leftovers(self) -> list[Leftover]:
        return self.left

    def adopt(self, leftover: Leftover, on_exit: Callable[[Exit], None]) -> None:
        self.end = on_exit

    async def stop(self, name: str, grace: float) -> None:
        """It has ended already."""


class NoLibraries:
    async def take_back(self, *_: Any) -> None:
        pass

    def release(self, *_: Any) -> None:
        pass


class Bench:
    def __init__(self, directory: Path, process: str = "") -> None:
        root = WorkingDirectory(directory)
        self.places = ProcessPlaces(root)
        self.supervisor = OneProcess(process)
        self.told: list[ProcessExit] = []
        node = LaunchNode(
            "tm", "127.0.0.1", root, directory / "token", JavaRuntime(None, Path("java"), 17), Configuration()
        )
        self.launcher = ProcessLauncher(
            node, cast(ProcessSupervisor, self.supervisor), cast(LibraryCache, NoLibraries())
        )
        self.launcher.on_exit(self.told.append)

    def file(self, key: DriverKey) -> Path:
        path = self.places.directory(key) / OUTCOME_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


async def test_the_end_of_a_driver_without_room_is_read_and_nothing_is_made_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_outcome(bench.file(FIRST), SUCCESS)
    bench.file(SECOND)
    adopted = await bench.launcher.adopt(frozenset(), {FIRST, SECOND}, {FIRST.job_id})
    assert adopted.outcomes == {FIRST: SUCCESS}
    assert bench.file(FIRST).exists(), "it is told until it is acknowledged"


async def test_without_a_record_every_outcome_counts_and_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    failure = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="planted")
    write_outcome(bench.file(FIRST), failure)
    write_outcome(bench.file(SECOND), SUCCESS)
    killed = bench.file(OTHER).parent
    assert (await bench.launcher.adopt(frozenset(), frozenset(), None)).outcomes == {FIRST: failure, SECOND: SUCCESS}
    assert bench.file(SECOND).exists()
    assert not killed.exists(), "of no use to anybody"
    assert (await bench.launcher.adopt(frozenset(), frozenset(), NO_JOBS)).outcomes == {}
    assert not any((tmp_path / "jobs").iterdir()), "what a record does not name has been acknowledged"


async def test_an_empty_working_directory_holds_no_outcome(tmp_path: Path) -> None:
    assert (await Bench(tmp_path).launcher.adopt(frozenset(), frozenset(), None)).outcomes == {}


@pytest.mark.parametrize(
    ("wanted", "ended", "jobs"),
    [({FIRST}, set(), {FIRST.job_id}), (set(), {FIRST}, {FIRST.job_id}), (set(), set(), None)],
    ids=["wanted", "without room", "without a record"],
)
async def test_an_outcome_that_cannot_be_read_now_is_no_loss(
    tmp_path: Path, wanted: set[DriverKey], ended: set[DriverKey], jobs: set[JobId] | None
) -> None:
    bench = Bench(tmp_path)
    bench.file(FIRST).mkdir()
    rubbish = bench.file(OTHER).parent
    with pytest.raises(Unavailable, match=OUTCOME_FILE):
        await bench.launcher.adopt(wanted, ended, jobs)
    assert rubbish.exists(), "nothing is deleted on an incomplete view"
    bench.file(FIRST).rmdir()
    write_outcome(bench.file(FIRST), SUCCESS)
    assert (await bench.launcher.adopt(wanted, ended, jobs)).outcomes == {FIRST: SUCCESS}


@pytest.mark.req("SAFE-14")
@pytest.mark.parametrize(
    ("wanted", "ended", "jobs"),
    [({FIRST}, set(), {FIRST.job_id}), (set(), {FIRST}, {FIRST.job_id}), (set(), set(), None)],
    ids=["wanted", "without room", "without a record"],
)
async def test_an_outcome_of_a_newer_release_is_no_loss(
    tmp_path: Path, wanted: set[DriverKey], ended: set[DriverKey], jobs: set[JobId] | None
) -> None:
    bench = Bench(tmp_path)
    write_newer_outcome(bench.file(FIRST))
    rubbish = bench.file(OTHER).parent
    with pytest.raises(NewerFormat, match=OUTCOME_FILE):
        await bench.launcher.adopt(wanted, ended, jobs)
    assert rubbish.exists(), "nothing is deleted on an incomplete view"
    assert bench.file(FIRST).exists()


@pytest.mark.parametrize("unreadable", ["now", pytest.param("newer", marks=pytest.mark.req("SAFE-14"))])
async def test_the_end_of_a_driver_is_told_once_its_outcome_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    monkeypatch.setattr(ends, "_FIRST_PAUSE", 0.01)
    bench = Bench(tmp_path, process_name(FIRST))
    assert FIRST in (await bench.launcher.adopt({FIRST}, frozenset(), {FIRST.job_id})).alive
    tries: list[BaseException] = []
    read = ProcessPlaces.outcome

    def noted(places: ProcessPlaces, key: DriverKey, exit_code: int | None, reason: str) -> AttemptOutcome:
        try:
            return read(places, key, exit_code, reason)
        except EmberkeepError as error:
            tries.append(error)
            raise

    monkeypatch.setattr(ProcessPlaces, "outcome", noted)
    if unreadable == "now":
        bench.file(FIRST).mkdir()
    else:
        write_newer_outcome(bench.file(FIRST))
    bench.supervisor.end(Exit(process_name(FIRST), None))
    async with asyncio.timeout(60.0):
        while len(tries) < 2:
            assert bench.told == []
            await asyncio.sleep(0.01)
    if unreadable == "now":
        bench.file(FIRST).rmdir()
    write_outcome(bench.file(FIRST), SUCCESS)
    async with asyncio.timeout(60.0):
        await bench.launcher.stop(FIRST, 0.0)  # returns once the end has been told
    assert [(end.key, end.outcome) for end in bench.told] == [(FIRST, SUCCESS)]
    await bench.launcher.leave()


async def test_a_disk_that_hangs_does_not_stop_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, process_name(FIRST))
    await bench.launcher.adopt({FIRST}, frozenset(), {FIRST.job_id})
    write_outcome(bench.file(FIRST), SUCCESS)
    asked, loop, answer = asyncio.Event(), asyncio.get_running_loop(), threading.Event()
    read, opened, main = hostile.open_to_read, Path.open, threading.get_ident()

    def hanging(path: Path) -> int:
        loop.call_soon_threadsafe(asked.set)
        assert threading.get_ident() != main, f"{path} is read on the event loop"
        assert answer.wait(60.0)
        return read(path)

    def opening(path: Path, *arguments: Any, **named: Any) -> Any:
        assert threading.get_ident() != main, f"{path} is opened on the event loop"
        return opened(path, *arguments, **named)

    monkeypatch.setattr(hostile, "open_to_read", hanging)
    monkeypatch.setattr(Path, "open", opening)
    bench.supervisor.end(Exit(process_name(FIRST), None))
    async with asyncio.timeout(60.0):
        await asked.wait()
        assert bench.told == []
        answer.set()
        await bench.launcher.stop(FIRST, 0.0)
    assert [(end.key, end.outcome) for end in bench.told] == [(FIRST, SUCCESS)]


async def test_an_end_that_cannot_be_told_is_no_silent_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends with it, and its next life reads the outcome again."""
    bench = Bench(tmp_path, process_name(FIRST))
    await bench.launcher.adopt({FIRST}, frozenset(), {FIRST.job_id})

    def mistaken(*_: Any) -> AttemptOutcome:
        raise AssertionError("planted")

    monkeypatch.setattr(ProcessPlaces, "outcome", mistaken)
    bench.supervisor.end(Exit(process_name(FIRST), 0))
    async with asyncio.timeout(60.0):
        with pytest.raises(AssertionError, match="planted"):
            await bench.launcher.run()
    assert bench.told == []

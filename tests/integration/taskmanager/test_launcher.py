"""What a launcher holds for the processes that it starts, and lets go of however they end. A script stands for Java."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from emberkeep.adapters.processes.supervisor import ProcessSupervisor
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.base.processes.process_identity import identify
from emberkeep.blobs.model import BlobKey
from emberkeep.daemons.taskmanager.launching.launcher import ProcessLauncher
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode
from emberkeep.jobs.model import Artefact, ArtefactRole
from emberkeep.local_state.model import Caller
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.state_gateway_conf import GATEWAY_VARIABLE, TRUST_VARIABLE
from emberkeep.taskmanager.libraries.archives import UnpackedArchives
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import ExecutorKey, ProcessExit
from tests.support.kernel.children import reap
from tests.unit.taskmanager.blobs.directory_blobs import DirectoryBlobs
from tests.unit.taskmanager.libraries.archives import regular, tar

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("BLOB-13")]

DEADLINE = 240.0  # seconds; no test waits for it when all is well
JOB = JobId("a" * 32)
# Tells its arguments and what it sees in its working directory, then waits to be killed.
PROGRAM = '#!/bin/sh\necho "$@"\nls -L .\ncat inside/*.txt\necho ready >&2\nexec sleep 3600\n'


class SlowBlobs(DirectoryBlobs):
    """Brings nothing before ``open`` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def acquire(self, owner: JobId, key: BlobKey, holder: str) -> Path:
        self.asked.set()
        await self.open.wait()
        return await super().acquire(owner, key, holder)


class Gateway:
    """Leads each process to a state gateway at ``place``: "host:port", and "host:port truststore" if it encrypts."""

    def __init__(self, place: str) -> None:
        self._address, _, self._trust = place.partition(" ")

    def environ(self, _: Caller) -> dict[str, str]:
        trust = {TRUST_VARIABLE: self._trust} if self._trust else {}
        return {GATEWAY_VARIABLE: self._address, **trust}


class Bench:
    def __init__(self, directory: Path, supervisor: ProcessSupervisor) -> None:
        self.java = directory / "java"
        self.java.write_text(PROGRAM)
        self.java.chmod(0o755)
        self.directory = WorkingDirectory(directory / "tm")
        self.blobs = SlowBlobs(directory / "blobs")
        self.archives = UnpackedArchives(self.directory.unpacked)
        self.token = directory / "token"
        self.exits: list[ProcessExit] = []
        self.launcher = self._launcher(supervisor)
        self.artefacts = (
            self.blobs.add(b"a jar", "udf.jar", ArtefactRole.JAR),
            self.blobs.add(b"looked up", "lookup.txt", ArtefactRole.FILE),
            self.blobs.add(tar(regular("packed.txt", b"unpacked")), "data.tgz", ArtefactRole.ARCHIVE, "inside"),
        )

    def _launcher(self, supervisor: ProcessSupervisor, gateway: str | None = None) -> ProcessLauncher:
        libraries = LibraryCache(self.blobs, self.archives, retention=3600.0)
        java = JavaRuntime(None, self.java, 17)
        node = LaunchNode("tm", "127.0.0.1", self.directory, self.token, java, Configuration())
        launcher = ProcessLauncher(node, supervisor, libraries, None if gateway is None else Gateway(gateway))
        launcher.on_exit(self.exits.append)
        return launcher

    async def next_life(self, supervisor: ProcessSupervisor, gateway: str | None = None) -> None:
        """Nothing of what the last one held is held any more."""
        self.blobs.holders.clear()
        self.archives = UnpackedArchives(self.directory.unpacked)
        await self.archives.start()
        self.launcher = self._launcher(supervisor, gateway)

    def request(self, executor: str = "1", *more: Artefact) -> StartExecutor:
        return StartExecutor(
            job_id=JOB,
            attempt=1,
            allocation_id=AllocationId("b" * 32),
            executor_id=ExecutorId(executor),
            driver_url="spark://driver",
            app_id="app-1",
            cores=1,
            heap_mb=100,
            java_options=(),
            extra_class_path="",
            environ={},
            auth_secret="",
            python_path=(),
            artefacts=(*self.artefacts, *more),
        )

    def log(self, executor: str = "1", stream: str = "stdout") -> str:
        path = self.directory.attempt_logs(JOB, 1) / f"executor-{executor}.{stream}"
        return path.read_text() if path.exists() else ""

    def users(self) -> int:
        """References to the job's files and to what was unpacked of them."""
        held = sum(len(holders) for holders in self.blobs.holders.values())
        return held + self.archives.users(self.artefacts[2].sha256)

    async def ended(self, count: int) -> None:
        await until(lambda: len(self.exits) == count)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


def key_of(request: StartExecutor) -> ExecutorKey:
    return ExecutorKey(
        job_id=request.job_id,
        attempt=request.attempt,
        allocation_id=request.allocation_id,
        executor_id=request.executor_id,
    )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    supervisor = ProcessSupervisor(tmp_path / "records", linger=0.5)
    bench = Bench(tmp_path, supervisor)
    await bench.archives.start()
    watching = asyncio.create_task(supervisor.run())
    try:
        yield bench
    finally:
        await bench.launcher.kill_all()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await supervisor.close()


async def test_an_executor_sees_its_files_and_holds_them_as_long_as_it_lives(bench: Bench) -> None:
    for executor in ("1", "2"):
        await bench.launcher.start_executor(bench.request(executor))
    await until(lambda: "ready" in bench.log("1", "stderr") and "ready" in bench.log("2", "stderr"))
    arguments, *seen = bench.log().splitlines()
    assert seen == ["inside", "lookup.txt", "udf.jar", "unpacked"]
    class_path = arguments.split()[1]
    assert class_path.split(":")[-1].endswith("/executors/1-bbbbbbbb/work/udf.jar")
    assert bench.users() == 8
    await bench.launcher.stop(key_of(bench.request("1")), 0.0)
    await bench.ended(1)
    assert bench.users() == 4, "those of the other one"
    await bench.launcher.kill_all()
    await bench.ended(2)
    assert bench.users() == 0
    await until(lambda: not any((bench.directory.attempt(JOB, 1) / "executors").iterdir()))


async def test_nothing_is_held_for_what_does_not_come_to_be(bench: Bench) -> None:
    absent = Artefact(role=ArtefactRole.FILE, name="absent", sha256="0" * 64, size=1)
    with pytest.raises(Fatal, match="cannot fetch a file of the job"):
        await bench.launcher.start_executor(bench.request("1", absent))
    bench.java.unlink()
    with pytest.raises(Fatal):
        await bench.launcher.start_executor(bench.request("1"))
    assert bench.users() == 0
    assert bench.exits == []


async def test_one_that_is_asked_to_end_while_its_files_are_brought_does_not_start(bench: Bench) -> None:
    bench.blobs.open.clear()
    request = bench.request()
    starting = asyncio.create_task(bench.launcher.start_executor(request))
    await bench.blobs.asked.wait()
    await bench.launcher.stop(key_of(request), 0.0)
    with pytest.raises(Fatal, match="the process was asked to end before it was started"):
        await starting
    bench.blobs.asked.clear()
    starting = asyncio.create_task(bench.launcher.start_executor(request))
    await bench.blobs.asked.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    bench.blobs.open.set()
    assert bench.users() == 0
    await bench.launcher.start_executor(request)
    await until(lambda: "ready" in bench.log("1", "stderr"))
    assert bench.users() == 4


@pytest.mark.req("LOC-5", "LOC-11")
async def test_the_next_life_adopts_what_it_wants_with_its_files_and_ends_and_deletes_the_rest(
    tmp_path: Path, bench: Bench
) -> None:
    first = ProcessSupervisor(tmp_path / "lives", linger=0.5)
    watching = asyncio.create_task(first.run())
    await bench.next_life(first)
    pids = [(await bench.launcher.start_executor(bench.request(executor))).pid for executor in ("1", "2", "3")]
    await until(lambda: all("ready" in bench.log(executor, "stderr") for executor in ("1", "2", "3")))
    stranger = bench.directory.job(JobId("c" * 32)) / "1" / "driver"
    stranger.mkdir(parents=True)
    watching.cancel()
    await asyncio.wait({watching})
    await bench.launcher.leave()
    await first.close()
    os.kill(pids[2], signal.SIGKILL)  # while nobody looked
    await until(lambda: identify(pids[2]) is None)

    second = ProcessSupervisor(tmp_path / "lives", linger=0.5)
    watching = asyncio.create_task(second.run())
    try:
        await bench.next_life(second)
        wanted = {key_of(bench.request(executor)) for executor in ("1", "3")}
        adopted = await bench.launcher.adopt(wanted, frozenset(), {JOB})
        assert adopted.alive == {key_of(bench.request("1")): pids[0]}
        assert identify(pids[1]) is None
        assert bench.exits == []
        await until(lambda: bench.users() == 4)
        executors = bench.directory.attempt(JOB, 1) / "executors"
        await until(lambda: {path.name for path in executors.iterdir()} == {"1-bbbbbbbb"})
        await until(lambda: not stranger.parent.parent.exists())
        assert bench.launcher.is_live(JOB, 1, "1")
        assert not bench.launcher.is_live(JOB, 1, "2")
        await bench.launcher.stop(key_of(bench.request("1")), 10.0)
        assert [(end.key, end.exit_code) for end in bench.exits] == [(key_of(bench.request("1")), None)]
        assert identify(pids[0]) is None
        assert bench.users() == 0
    finally:
        await bench.launcher.kill_all()
        watching.cancel()
        await asyncio.wait({watching})
        await second.close()
        reap(*pids)


@pytest.mark.req("SAFE-17")
@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        ("127.0.0.1:7", "127.0.0.1:7", True),
        ("127.0.0.1:7", "127.0.0.1:8", False),
        ("127.0.0.1:7", None, False),
        (None, "127.0.0.1:8", True),
        ("127.0.0.1:7 /trust", "127.0.0.1:7 /trust", True),
        ("127.0.0.1:7", "127.0.0.1:7 /trust", False),
        ("127.0.0.1:7 /trust", "127.0.0.1:7", False),
    ],
    ids=[
        *("the same", "another port", "switched off", "switched on"),
        *("the same, encrypted", "encrypts now", "encrypts no more"),
    ],
)
async def test_an_executor_goes_on_only_where_its_state_gateway_does(
    tmp_path: Path, bench: Bench, before: str | None, after: str | None, goes_on: bool
) -> None:
    """Its tasks would fail for ever; its slot takes another executor, with the copies that are kept for it."""
    first = ProcessSupervisor(tmp_path / "lives", linger=0.5)
    watching = asyncio.create_task(first.run())
    await bench.next_life(first, before)
    pid = (await bench.launcher.start_executor(bench.request())).pid
    watching.cancel()
    await asyncio.wait({watching})
    await bench.launcher.leave()
    await first.close()

    second = ProcessSupervisor(tmp_path / "lives", linger=0.5)
    watching = asyncio.create_task(second.run())
    try:
        await bench.next_life(second, after)
        key = key_of(bench.request())
        adopted = await bench.launcher.adopt({key}, frozenset(), {JOB})
        assert adopted.alive == ({key: pid} if goes_on else {})
        assert (identify(pid) is not None) is goes_on
    finally:
        await bench.launcher.kill_all()
        watching.cancel()
        await asyncio.wait({watching})
        await second.close()
        reap(pid)

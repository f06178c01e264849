"""A task manager sends its logs of jobs; what arrives is stored in real files."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.kept_logs.files import KeepLimits
from emberkeep.adapters.kept_logs.segments import compress, digest_of
from emberkeep.adapters.kept_logs.store import KeptLogStore
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import (
    Absent,
    Conflict,
    EmberkeepError,
    InvalidInput,
    NewerFormat,
    Unavailable,
    UnknownOutcome,
)
from emberkeep.base.files.holes import punch
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.kept_logs.model import PIECE_BYTES, KeptLogKey, Position
from emberkeep.protocol.messages.logs import KeepLog, LogKept
from emberkeep.protocol.messages.root import Message
from emberkeep.rest.logs import shipping as module
from emberkeep.rest.logs.shipping import LogShipping, ShippingSettings
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs
from emberkeep.rest.serving.log_contents import read_kept
from tests.support.kept_logs.pieces import JOB, content_of, key
from tests.support.memory_rpc import MemoryNetwork
from tests.unit.rest.server import eventually

LEADER, NEXT = "127.0.0.1:1", "127.0.0.1:2"


class Leader:
    """Stores what it gets.

    ``error`` is raised instead; ``refused``: only for the log of this name. ``loses``: replies that are lost after the
    piece is stored.
    """

    def __init__(self, root: Path, epoch: int = 1) -> None:
        self.epoch = epoch
        self.error: EmberkeepError | None = None
        self.refused = ""
        self.loses = 0
        self.requests: list[KeepLog] = []
        self.stored: list[Position] = []
        limits = KeepLimits(most_bytes=64 * 1024**2, keep_ms=0)
        self.store = KeptLogStore(root, limits, SystemClock(), lambda: None)

    async def serve(self, request: Message) -> Message:
        assert isinstance(request, KeepLog)
        self.requests.append(request)
        if self.error is not None and self.refused in ("", request.name):
            raise self.error
        log = KeptLogKey(
            job_id=request.job_id, attempt=request.attempt, task_manager=request.task_manager, name=request.name
        )
        position = await self.store.keep(self.epoch, log, request.piece)
        self.stored.append(position)
        if self.loses and request.piece.header.size:
            self.loses -= 1
            raise UnknownOutcome("the connection broke")
        return LogKept(position=position)

    async def kept(self, log: KeptLogKey) -> bytes:
        return await self.store.examine(log, content_of)


class Link:
    registered = True
    job_manager = LEADER
    epoch = 1


class OwnClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 10**12 + int(self.seconds * 1000)


class Site:
    """A task manager with its working directory. ``live``: its processes, named "<job>-<attempt>-<executor or d>"."""

    def __init__(self, directory: Path) -> None:
        self.directory = WorkingDirectory(directory / "tm")
        self.live: set[str] = set()
        self.network, self.link, self.clock = MemoryNetwork(), Link(), OwnClock()
        self.leader = Leader(directory / "kept")
        self.network.attach(LEADER, self.leader)
        self.shipping = self.another()

    def another(self) -> LogShipping:
        """The next task manager process in the same working directory."""
        return LogShipping(
            (TaskManagerId("tm-1"), InstanceId("f" * 32)),
            TaskManagerLogs(self.directory, lambda job, attempt, executor: f"{job}-{attempt}-{executor}" in self.live),
            self.network,
            self.link,
            ShippingSettings(interval=60.0, timeout=5.0, keep=0.0),
            self.clock,
            live=lambda: frozenset(self.live),
            compress=compress,
            digest=digest_of,
        )

    def write(self, data: bytes, name: str = "driver.stderr", job_id: JobId = JOB) -> Path:
        directory = self.directory.attempt_logs(job_id, 1)
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / name).open("ab") as file:
            file.write(data)
        return directory / name


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    site.shipping.close()


async def test_whole_lines_are_sent_and_the_rest_when_the_process_has_ended(site: Site) -> None:
    site.live = {f"{JOB}-1-"}
    site.write(b"one\ntw")
    assert await site.shipping.send_all()
    assert await site.leader.kept(key()) == b"one\n"

    site.write(b"o\nthree")
    assert await site.shipping.send_all()
    assert await site.leader.kept(key()) == b"one\ntwo\n"

    site.live = set()
    assert await site.shipping.send_all()
    assert await site.leader.kept(key()) == b"one\ntwo\nthree"
    assert [log.is_whole for log in (await site.leader.store.logs(JOB)).logs] == [True]


async def test_nothing_is_sent_again(site: Site) -> None:
    site.write(b"one\n")
    site.write(b"", "driver.stdout")
    await site.shipping.send_all()
    sent = len(site.leader.requests)

    await site.shipping.send_all()

    assert len(site.leader.requests) == sent
    assert sent == 4, "a question and a piece of each"


async def test_the_next_task_manager_process_continues(site: Site) -> None:
    site.live = {f"{JOB}-1-"}
    site.write(b"one\n")
    await site.shipping.send_all()
    site.write(b"two\n")
    following = site.another()

    await following.send_all()

    assert await site.leader.kept(key()) == b"one\ntwo\n"
    following.close()


async def test_the_next_leader_is_asked_what_it_has(site: Site, tmp_path: Path) -> None:
    site.live = {f"{JOB}-1-"}
    site.write(b"one\n")
    await site.shipping.send_all()
    successor = Leader(tmp_path / "kept", epoch=2)
    site.network.attach(NEXT, successor)
    site.link.job_manager = NEXT
    site.write(b"two\n")

    await site.shipping.send_all()

    assert await successor.kept(key()) == b"one\ntwo\n"
    assert [request.piece.header.offset for request in successor.requests] == [0, 4]


async def test_a_piece_whose_reply_was_lost_is_not_stored_twice(site: Site) -> None:
    site.write(b"one\n")
    site.leader.loses = 1
    with capture_logs() as logs:
        assert not await site.shipping.send_all()
        assert await site.shipping.send_all()

    assert await site.leader.kept(key()) == b"one\n"
    assert [line["log_level"] for line in logs] == ["warning", "info"], "the problem, and its end"


async def test_logs_of_unknown_jobs_are_not_offered_again(site: Site) -> None:
    site.write(b"one\n")
    site.leader.error = Absent("there is no such job")
    assert await site.shipping.send_all()
    site.leader.error = None
    assert await site.shipping.send_all()

    assert len(site.leader.requests) == 1


@pytest.mark.parametrize("error", [Conflict("logs are not kept"), InvalidInput("no such request")])
async def test_a_leader_that_takes_no_logs_is_left_alone(
    site: Site, error: EmberkeepError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    site.write(b"one\n")
    site.leader.error = error
    running = asyncio.create_task(site.shipping.run())
    with capture_logs() as logs:
        await eventually(lambda: bool(logs))
    site.leader.error = None
    site.clock.seconds = 599.0
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(site.leader.requests) == 1

    site.clock.seconds = 700.0
    await eventually(lambda: len(site.leader.requests) == 3)
    running.cancel()


async def test_the_end_of_a_process_begins_a_round(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    site.live = {f"{JOB}-1-"}
    running = asyncio.create_task(site.shipping.run())
    await asyncio.sleep(0.05)
    site.write(b"no end")
    site.live = set()

    await eventually(lambda: any(position.is_whole for position in site.leader.stored))
    assert await site.leader.kept(key()) == b"no end"
    running.cancel()


async def test_a_log_that_grows_faster_than_it_is_sent_keeps_its_newest_lines(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BYTES_PER_SECOND", 10**12)
    site.live = {f"{JOB}-1-"}
    site.write(b"first\n")
    await site.shipping.send_all()
    path = site.write(b"")
    with path.open("r+b") as file:
        file.truncate(100 * 1024**2)  # sparse
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")

    assert await site.shipping.send_all()

    kept = await site.leader.kept(key())
    assert kept.startswith(b"first\n--- Emberkeep: ")
    assert kept.endswith(b"\nlast\n")
    assert len(kept) < 9 * 1024**2


async def test_a_log_that_grows_and_loses_its_middle_while_it_is_sent_is_stored_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BYTES_PER_SECOND", 10**12)
    site.live = {f"{JOB}-1-"}
    line = b"x" * 99 + b"\n"
    path = site.write(b"first\n" + line * (3 * PIECE_BYTES // len(line)))
    reads = itertools.count()

    def read(descriptor: int, start: int, count: int) -> tuple[int, bytes]:
        if next(reads) == 1:
            with path.open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(line * (40 * PIECE_BYTES // len(line)) + b"last\n")
                file.flush()
                punch(file.fileno(), PIECE_BYTES // 2, 40 * PIECE_BYTES)
        return read_kept(descriptor, start, count)

    monkeypatch.setattr(module, "read_kept", read)
    async with asyncio.timeout(30):
        await site.shipping.send_all()
        await site.shipping.send_all()  # sends what the first round could not know of

    sources = [request.piece.header.source for request in site.leader.requests if request.piece.header.size]
    assert sources == sorted(set(sources)), "a part was stored again"
    assert (await site.leader.kept(key())).endswith(b"\nlast\n")


async def test_what_is_no_log_of_a_job_is_not_sent(site: Site) -> None:
    site.write(b"one\n", job_id=JobId("no job"))
    site.write(b"one\n", job_id=JobId(os.fsdecode(b"\xff")))
    site.write(b"one\n", "notes.txt")

    assert await site.shipping.send_all()

    assert site.leader.requests == []


async def test_a_directory_that_cannot_be_read_does_not_hold_up_the_logs_of_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write(b"one\n", "driver.stdout")
    bad = site.directory.attempt_logs(JOB, 2)
    bad.mkdir(parents=True)
    scan = os.scandir

    def failing(path: Path) -> Any:
        if path == bad:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", failing)
    assert not await site.shipping.send_all()
    assert [log.key.name for log in (await site.leader.store.logs(JOB)).logs] == ["driver.stdout"]

    monkeypatch.undo()
    assert await site.shipping.send_all()


async def test_a_link_in_place_of_a_log_is_not_followed(site: Site, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret\n")
    directory = site.directory.attempt_logs(JOB, 1)
    directory.mkdir(parents=True)
    (directory / "driver.stderr").symlink_to(secret)
    site.write(b"one\n", "driver.stdout")

    assert await site.shipping.send_all()

    assert [log.key.name for log in (await site.leader.store.logs(JOB)).logs] == ["driver.stdout"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
async def test_a_log_that_cannot_be_read_now_is_sent_later(
    site: Site, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opening = site.write(b"one\n"), os.open

    def failing(where: Path, *rest: Any, **more: Any) -> int:
        if where == path:
            raise OSError(number, os.strerror(number))
        return opening(where, *rest, **more)

    with monkeypatch.context() as refused:
        refused.setattr(os, "open", failing)
        assert not await site.shipping.send_all()
    assert await site.shipping.send_all()

    assert await site.leader.kept(key()) == b"one\n"


async def test_a_log_that_cannot_be_read_does_not_keep_the_others_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(site.write(b"one\n", "driver.stdout"), (1, 1))
    path, opening = site.write(b"one\n"), os.open

    def failing(where: Path, *rest: Any, **more: Any) -> int:
        if where == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opening(where, *rest, **more)

    with monkeypatch.context() as refused:
        refused.setattr(os, "open", failing)
        with capture_logs() as logs:
            assert not await site.shipping.send_all()

    assert [line["log_level"] for line in logs] == ["warning"]
    assert await site.leader.kept(key("driver.stdout")) == b"one\n"


@pytest.mark.parametrize(
    "error",
    [Unavailable("a segment cannot be read"), NewerFormat("newer"), UnknownOutcome("broke"), InvalidInput("no")],
)
async def test_a_log_that_the_leader_cannot_keep_does_not_hold_the_others_back(
    site: Site, error: EmberkeepError
) -> None:
    for seconds, name in enumerate(("driver.stdout", "executor-1.stderr"), 1):
        os.utime(site.write(b"one\n", name), (seconds, seconds))
    site.write(b"one\n")
    site.leader.error, site.leader.refused = error, "driver.stderr"

    for _ in range(2):
        assert not await site.shipping.send_all()

    assert await site.leader.kept(key("driver.stdout")) == b"one\n"
    assert await site.leader.kept(key("executor-1.stderr")) == b"one\n"
    site.leader.error = None
    assert await site.shipping.send_all()
    assert await site.leader.kept(key()) == b"one\n"


async def test_a_log_that_was_dropped_is_not_sent_to_the_next_leaders(site: Site, tmp_path: Path) -> None:
    site.write(b"one\n")
    site.write(b"two\n", "driver.stdout")
    await site.shipping.send_all()
    for segment in (tmp_path / "kept").rglob("*~driver.stderr/*.segment"):
        segment.unlink()

    for epoch in (2, 3):
        leader = Leader(tmp_path / "kept", epoch)
        site.network.attach(LEADER, leader)
        site.link.epoch = epoch
        assert await site.shipping.send_all()
        assert await site.shipping.send_all()
        assert sorted((request.name, request.piece.header.size) for request in leader.requests) == [
            ("driver.stderr", 0),
            ("driver.stdout", 0),
        ], "one question each"


async def test_a_dropped_log_is_not_sent_to_the_next_leader_because_it_could_not_be_listed_for_a_while(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, scan = site.write(b"one\n"), os.scandir
    await site.shipping.send_all()
    for segment in (tmp_path / "kept").rglob("*.segment"):
        segment.unlink()

    def failing(where: Path) -> Any:
        if where == path.parent:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(where))
        return scan(where)

    entry = TaskManagerLogs(site.directory, lambda *_: False).find(f"{JOB}-1-driver.stderr")
    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", failing)
        assert not await site.shipping.send_all()
    assert site.shipping.stored(entry) == entry.size
    site.network.attach(LEADER, leader := Leader(tmp_path / "kept", 2))
    site.link.epoch = 2

    assert await site.shipping.send_all()

    assert [request.piece.header.size for request in leader.requests] == [0], "a question only"


async def test_what_was_sent_of_logs_that_are_gone_is_forgotten(site: Site) -> None:
    path = site.write(b"one\n")
    await site.shipping.send_all()
    path.unlink()

    await site.shipping.send_all()

    assert site.shipping._sent == {}


async def test_a_log_that_is_being_written_is_sent_again_if_it_was_dropped(site: Site, tmp_path: Path) -> None:
    site.live = {f"{JOB}-1-"}
    site.write(b"one\n")
    await site.shipping.send_all()
    for segment in (tmp_path / "kept").rglob("*.segment"):
        segment.unlink()
    site.network.attach(LEADER, leader := Leader(tmp_path / "kept", 2))
    site.link.epoch = 2

    await site.shipping.send_all()

    assert await leader.kept(key()) == b"one\n"


async def test_the_newest_log_is_sent_first(site: Site) -> None:
    for name, seconds in (("driver.stderr", 1), ("driver.stdout", 3), ("executor-1.stderr", 2)):
        os.utime(site.write(b"one\n", name), (seconds, seconds))

    await site.shipping.send_all()

    sent = [request.name for request in site.leader.requests if request.piece.header.size]
    assert sent == ["driver.stdout", "executor-1.stderr", "driver.stderr"]


async def test_the_next_leader_is_asked_at_once_whether_it_takes_logs(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    site.write(b"one\n")
    site.leader.error = Conflict("logs are not kept")
    running = asyncio.create_task(site.shipping.run())
    with capture_logs() as logs:
        await eventually(lambda: bool(logs))
    site.network.attach(NEXT, successor := Leader(tmp_path / "kept", epoch=2))
    site.link.job_manager, site.link.epoch = NEXT, 2
    site.clock.seconds = 61.0

    await eventually(lambda: len(successor.stored) == 2)
    running.cancel()

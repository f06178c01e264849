"""A supervisor whose own disk does not answer says so, and its process can end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.processes import supervisor as supervising
from emberkeep.adapters.processes import watched_thread
from emberkeep.adapters.processes.supervisor import ProcessSupervisor, StartRequest
from emberkeep.base.errors import Fatal

pytestmark = pytest.mark.anyio

REQUEST = StartRequest("a", ("true",), {}, Path("/"), Path("/dev/null"), Path("/dev/null"))


class Disk:
    def __init__(self) -> None:
        self.answers = threading.Event()

    def launch(self, *_: Any) -> None:
        self.answers.wait(60)
        raise Fatal("the disk has answered")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(supervising, "launch", disk.launch)
    monkeypatch.setattr(supervising, "KILLED_SECONDS", 0.05)
    monkeypatch.setattr(watched_thread, "HANGING_SECONDS", 0.05)
    yield disk
    disk.answers.set()


async def test_work_that_hangs_is_said_once_and_so_is_its_end(tmp_path: Path, disk: Disk) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    with capture_logs() as said:
        starting = asyncio.create_task(supervisor.start(REQUEST, lambda _: None))
        looking = asyncio.create_task(supervisor.leftovers())
        async with asyncio.timeout(60):
            while not any("hangs" in each["event"] for each in said):  # noqa: ASYNC110 - whoever logs tells nobody
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # it could be said again
        disk.answers.set()
        with pytest.raises(Fatal, match="has answered"):
            await starting
        assert await looking == []
    events = [(each["log_level"], each["event"]) for each in said if "supervisor" in each["event"]]
    assert events == [
        ("error", "the supervisor of processes hangs: it starts none, and sees none end"),
        ("warning", "the supervisor of processes goes on"),
    ]
    await supervisor.close()


async def test_a_thread_that_has_much_to_do_does_not_hang(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_thread, "HANGING_SECONDS", 1.0)
    thread = watched_thread.WatchedThread(tmp_path)
    with capture_logs() as said:
        await asyncio.gather(*(thread.run(disk.answers.wait, 0.1) for _ in range(15)))
    assert said == []
    await thread.close(60)


async def test_the_end_of_a_process_does_not_wait_for_a_start_that_hangs(tmp_path: Path, disk: Disk) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    starting = asyncio.create_task(supervisor.start(REQUEST, lambda _: None))
    await asyncio.sleep(0)
    with capture_logs() as said:
        async with asyncio.timeout(30):
            await supervisor.close()
    assert [each["starts"] for each in said if "starts" in each] == [["start a"]]
    disk.answers.set()
    with pytest.raises(Fatal):
        await starting
    await supervisor.close()

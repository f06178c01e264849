"""A process gets another name: for this supervisor, for the next one, and for whoever is told of its end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.adapters.processes import supervisor as supervisor_module
from emberkeep.adapters.processes.start import ProcessRecord, write_process_record
from emberkeep.adapters.processes.supervisor import Exit
from emberkeep.base.errors import Absent, Conflict, Fatal
from emberkeep.base.processes.process_identity import identify
from tests.integration.taskmanager.test_processes import DEADLINE, SLEEP, Bench, ended, until, watching
from tests.support.kernel.children import reap

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

CHILD = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
    "open('child.tmp', 'w').write(str(child.pid))\n"
    "os.rename('child.tmp', 'child')\n"
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    async with watching(bench.supervisor):
        yield bench


def unexpected(end: Exit) -> None:
    raise AssertionError(f"the first owner hears of {end}")


async def start(bench: Bench, program: str = SLEEP) -> int:
    return await bench.supervisor.start(bench.request(program), unexpected)


async def test_the_process_goes_on_and_its_end_is_told_to_the_new_owner(bench: Bench) -> None:
    pid = await start(bench)
    assert await bench.supervisor.rename("p", "q", bench.exits.append) == pid
    assert bench.supervisor.running() == {"q"}
    await bench.supervisor.stop("p", 0.0)
    assert not ended(pid)
    await bench.supervisor.stop("q", 0.0)
    assert bench.exits == [Exit("q", -signal.SIGKILL)]
    assert list(bench.records.iterdir()) == []


async def test_stop_by_the_new_name_ends_all_members(bench: Bench) -> None:
    pid = await start(bench, CHILD + SLEEP)
    child = await bench.told("child")
    await bench.supervisor.rename("p", "q", bench.exits.append)
    await bench.supervisor.stop("q", 0.0)
    assert ended(pid)
    assert ended(child)


async def test_the_old_name_can_be_used_again(bench: Bench) -> None:
    await start(bench)
    await bench.supervisor.rename("p", "q", bench.exits.append)
    await bench.start(SLEEP)
    assert bench.supervisor.running() == {"p", "q"}
    await bench.supervisor.stop("p", 0.0)
    assert bench.exits == [Exit("p", -signal.SIGKILL)]


async def test_the_next_supervisor_finds_it_by_the_new_name(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    task = asyncio.create_task(first.supervisor.run())
    pid = await start(first)
    await first.supervisor.rename("p", "q", first.exits.append)
    task.cancel()
    await asyncio.wait({task})
    await first.supervisor.close()

    second = Bench(tmp_path)
    async with watching(second.supervisor):
        (leftover,) = await second.supervisor.leftovers()
        assert leftover.name == "q"
        assert leftover.marker.startswith("p@")
        assert leftover.leader == identify(pid)
        assert leftover.is_led
        second.supervisor.adopt(leftover, second.exits.append)
        assert second.supervisor.running() == {"q"}
        await second.supervisor.stop("q", 0.0)
        assert second.exits == [Exit("q", None)]
    assert list(second.records.iterdir()) == []
    reap(pid)


@pytest.mark.parametrize("name", ["p", "unknown"])
async def test_a_process_that_has_ended_gets_no_new_name(bench: Bench, name: str) -> None:
    await bench.start("")
    await bench.exit()
    with pytest.raises(Absent, match=f"the process {name} has ended"):
        await bench.supervisor.rename(name, "q", unexpected)


async def test_a_process_that_ends_in_the_meantime_keeps_its_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await bench.start(SLEEP)
    (family,) = bench.supervisor._watch.families.values()

    def write(path: Path, record: ProcessRecord) -> None:
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE
        while not family.leader_ended and time.monotonic() < deadline:
            time.sleep(0.01)
        write_process_record(path, record)

    monkeypatch.setattr(supervisor_module, "write_process_record", write)
    with pytest.raises(Absent):
        await bench.supervisor.rename("p", "q", unexpected)
    assert await bench.exit() == Exit("p", -signal.SIGKILL)
    assert list(bench.records.iterdir()) == []


async def test_a_record_that_cannot_be_written_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.start(SLEEP)
    before = [path.read_bytes() for path in bench.records.iterdir()]

    def full(*_: object) -> None:
        raise Fatal("no space left on device")

    monkeypatch.setattr(supervisor_module, "write_process_record", full)
    with pytest.raises(Fatal, match="no space"):
        await bench.supervisor.rename("p", "q", unexpected)
    assert bench.supervisor.running() == {"p"}
    assert [path.read_bytes() for path in bench.records.iterdir()] == before
    await bench.supervisor.stop("p", 0.0)
    assert bench.exits == [Exit("p", -signal.SIGKILL)]


async def test_a_name_belongs_to_one_process(bench: Bench) -> None:
    pids = {name: await bench.start(SLEEP, name) for name in ("p", "q")}
    with pytest.raises(Conflict, match="q runs already"):
        await bench.supervisor.rename("p", "q", unexpected)
    assert bench.supervisor.running() == {"p", "q"}
    starting = asyncio.create_task(bench.start(SLEEP, "r"))
    await asyncio.sleep(0)
    with pytest.raises(Conflict, match="r runs already"):
        await bench.supervisor.rename("p", "r", unexpected)
    pids["r"] = await starting
    assert not any(ended(pid) for pid in pids.values())


async def test_a_name_is_given_once_while_a_process_is_renamed(bench: Bench) -> None:
    for name in ("p", "q"):
        await bench.start(SLEEP, name)
    first = asyncio.create_task(bench.supervisor.rename("p", "r", bench.exits.append))
    await asyncio.sleep(0)
    with pytest.raises(Conflict, match="r runs already"):
        await bench.supervisor.rename("q", "r", unexpected)
    with pytest.raises(Conflict, match="r runs already"):
        await bench.start(SLEEP, "r")
    await first
    assert bench.supervisor.running() == {"q", "r"}
    await until(lambda: len(list(bench.records.iterdir())) == 2)

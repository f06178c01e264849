"""Starts and stops that are cut short kill their process, and do not wait for ever for the end of that."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.processes import supervisor as supervising
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor
from tests.unit.adapters.processes.running import sleeper

pytestmark = pytest.mark.anyio


async def test_a_killed_process_that_does_not_end_keeps_no_start_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``run`` no end is seen: the process could as well wait for a mount that hangs."""
    monkeypatch.setattr(supervising, "KILLED_SECONDS", 0.05)
    supervisor, exits = ProcessSupervisor(tmp_path / "records"), list[Exit]()
    starting = asyncio.create_task(supervisor.start(sleeper(tmp_path), exits.append))
    await asyncio.sleep(0)
    starting.cancel()
    with capture_logs() as said, pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await starting
    assert [each["start"] for each in said if each["log_level"] == "error"] == ["start sleeper"]
    async with asyncio.timeout(60):  # the thread that starts it may be slow
        while supervisor.running() != {"sleeper"}:  # noqa: ASYNC110 - it is watched until it has ended
            await asyncio.sleep(0.01)
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(60):
        while supervisor.running():  # noqa: ASYNC110 - the end is reported to nobody
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    await supervisor.close()
    assert exits == []


async def test_a_stop_ends_although_the_watch_ended_while_it_noted_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = ProcessSupervisor(tmp_path / "records")
    entered, goes_on, end = threading.Event(), threading.Event(), supervisor.groups.end

    def slow(marker: str) -> int | None:
        entered.set()
        goes_on.wait(60)
        return end(marker)

    monkeypatch.setattr(supervisor.groups, "end", slow)
    await supervisor.start(sleeper(tmp_path), lambda _: None)
    running = asyncio.create_task(supervisor.run())
    stopping = asyncio.create_task(supervisor.stop("sleeper", 0.0))
    assert await asyncio.to_thread(entered.wait, 60)
    running.cancel()
    await asyncio.wait({running})
    goes_on.set()
    async with asyncio.timeout(30):
        await stopping
    await supervisor.close()

"""Requests for attempts that are over reach a real state gateway, and are judged by its answers."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest

from campaign.processes.gateways import late_writer
from campaign.processes.gateways.late_writer import Door, LateWriter, read_door
from campaign.processes.gateways.late_writes import ACKNOWLEDGED, LateWrite, judge_late_writes
from campaign.processes.gateways.stored import FENCED, StoredEntry, read_stored
from campaign.processes.gateways.strikes import GatewayStrikes
from campaign.processes.places import Loopback
from emberkeep.adapters.http.server import BoundPort, bind_port, serve_http
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.gateway_paths import gateway_uri
from emberkeep.local_state.model import Caller
from emberkeep.taskmanager.state_gateway.fences import GatewayFences
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, JOB, Node

SECRET = b"the node's"
NEWEST = 2


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[BoundPort]:
    """The gateway of attempt 1. Attempt 2 was admitted by another one."""
    port = bind_port("127.0.0.1", 0)
    web = WebHdfs(Node(tmp_path / "node").gateway, lambda text: caller_of(SECRET, text), f"http://{port.address}")
    Node(tmp_path / "node", "other").gateway.admit(DRIVER_OF[NEWEST])
    server = await serve_http(web.application(), port)
    yield port
    await server.close()
    web.close()


def a_job(place: Path, address: str, attempts: int = NEWEST) -> Any:
    """Return a job whose attempts have shown how they reach their gateways."""
    (place / "state" / "entries").mkdir(parents=True)
    (place / "doors").mkdir()
    for attempt in range(1, attempts + 1):
        door = Door(
            job_id=JOB,
            pid=attempt,
            task_manager="tm-1",
            address=address,
            credential=credential(SECRET, DRIVER_OF[attempt]),
            root=f"{gateway_uri('', JOB, str(place / 'state'), '/none')}/",
        )
        (place / "doors" / str(attempt)).write_bytes(msgspec.json.encode(door))
    (place / "doors" / "3.new").write_bytes(b"half of")
    return SimpleNamespace(place=place, is_stored=True)


async def written(job: Any) -> list[LateWrite]:
    """Let a late writer ask, and return what it was answered."""
    world: Any = SimpleNamespace(jobs=[SimpleNamespace(place=job.place.parent, is_stored=False), job])
    writer = LateWriter(world, Loopback())
    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(60):
        while len(writer.written[JOB]) < 2:
            await asyncio.wait([running], timeout=0.01)
    running.cancel()
    await writer.finish()
    return writer.written[JOB]


async def test_a_gateway_refuses_what_an_attempt_asks_for_once_it_is_over(tmp_path: Path, port: BoundPort) -> None:
    job = a_job(tmp_path / "job-1", port.address)
    found = await written(job)
    assert [(each.attempt, each.newer, each.what, each.answer) for each in found] == [
        (1, NEWEST, "upload a file", FENCED),
        (1, NEWEST, "rename it", FENCED),
    ]
    assert judge_late_writes(found, read_stored(job.place)) == []


async def test_a_request_that_a_gateway_lets_through_is_found(
    tmp_path: Path, port: BoundPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GatewayFences, "check", lambda fences, caller: fences.see(caller.job_id, NEWEST))
    job = a_job(tmp_path / "job-1", port.address)
    found = await written(job)
    assert [each.answer for each in found] == [ACKNOWLEDGED, FENCED]
    violations = judge_late_writes(found, read_stored(job.place))
    assert len(violations) == 2
    assert all("to upload a file, after attempt 2 was admitted" in each for each in violations)


async def test_a_gateway_that_lets_everything_through_renames_as_well(
    tmp_path: Path, port: BoundPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_fences: GatewayFences, _caller: Caller) -> None:
        """Find no newer attempt."""

    monkeypatch.setattr(GatewayFences, "check", check)
    job = a_job(tmp_path / "job-1", port.address)
    assert [each.answer for each in await written(job)] == [ACKNOWLEDGED, ACKNOWLEDGED]
    assert [each.name for each in read_stored(job.place)] == ["late-1"]


async def test_a_gateway_that_is_away_has_answered_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_writer, "PATIENCE", 0.05)
    port = bind_port("127.0.0.1", 0)
    port.close()
    found = await written(a_job(tmp_path / "job-1", port.address))
    assert [each.answer for each in found] == ["", ""]
    assert judge_late_writes(found, ()) == []


async def test_the_newest_attempt_may_ask_for_itself(tmp_path: Path) -> None:
    world: Any = SimpleNamespace(jobs=[a_job(tmp_path / "job-1", "nowhere", attempts=1)])
    writer = LateWriter(world, Loopback())
    assert not list(writer._over())


async def test_a_driver_that_was_admitted_is_killed(tmp_path: Path, driver: subprocess.Popen[bytes]) -> None:
    job = a_job(tmp_path / "job-1", "nowhere")
    newest = job.place / "doors" / f"{NEWEST}"
    newest.write_bytes(msgspec.json.encode(msgspec.structs.replace(read_door(newest), pid=driver.pid)))
    world: Any = SimpleNamespace(jobs=[job])
    cluster: Any = SimpleNamespace(drivers=lambda: [1, driver.pid])  # 1: as that of the attempt before
    strikes = GatewayStrikes(cluster, world, mock.AsyncMock(), mock.Mock())
    assert (await strikes.kill_driver(random.Random(1))).target == str(driver.pid)
    assert driver.wait(60) == -signal.SIGKILL
    cluster.drivers = list
    assert not (await strikes.kill_driver(random.Random(1))).target


@pytest.mark.parametrize(
    ("answer", "stored", "found"),
    [
        pytest.param(FENCED, (), "", id="refused"),
        pytest.param("", (), "", id="no reply"),
        pytest.param(ACKNOWLEDGED, (), "was not refused as an attempt that is over: acknowledged", id="acknowledged"),
        pytest.param(
            "FileNotFoundException", (), "as an attempt that is over: FileNotFoundException", id="for another reason"
        ),
        pytest.param("", (StoredEntry(name="late-1", attempt=1, asked=5.0),), "that is stored as late-1", id="stored"),
        pytest.param("", (StoredEntry(name="1", attempt=1, asked=4.0),), "", id="stored before"),
    ],
)
def test_the_judgement(answer: str, stored: tuple[StoredEntry, ...], found: str) -> None:
    write = LateWrite(attempt=1, newer=2, what="upload a file", asked=5.0, answer=answer)
    violations = judge_late_writes([write], stored)
    assert len(violations) == bool(found)
    assert found in "".join(violations)

"""Drivers and task managers that cannot reach ZooKeeper stay with the leader all the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from emberkeep.adapters.leader_news import file as leader_file
from emberkeep.adapters.leader_news import inquiry
from emberkeep.adapters.leader_news.file import read_leader_file, write_leader_file
from emberkeep.adapters.leader_news.inquiry import TellsLeader
from emberkeep.adapters.zookeeper.leader_locators import KnownLeader
from emberkeep.base.identity import AttemptScope
from emberkeep.daemons.leader_following import follow_leader, locate_by_file, tell_drivers
from emberkeep.daemons.process_main import Services
from emberkeep.leadership.model import LeaderAddress, LeaderNews
from emberkeep.protocol.messages.leaders import AskLeader, LeaderTold
from emberkeep.protocol.messages.root import Ack
from tests.support.memory_rpc import MemoryNetwork
from tests.support.scripted_service import ScriptedService

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-11")]

FIRST, SECOND = LeaderAddress(7, "jm-1:1"), LeaderAddress(8, "jm-2:1")


class Follower:
    """Speaks to nobody."""

    def __init__(self, job_manager: str) -> None:
        self.job_manager = job_manager
        self.on_silence: Callable[[], None] = lambda: None

    def follow(self, job_manager: str) -> None:
        self.job_manager = job_manager


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_file, "LOOK_INTERVAL", 0.005)
    monkeypatch.setattr(inquiry, "PAUSE", 0.0)


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    services = Services()
    yield services
    await services.cancel()


def knowing(news: LeaderNews) -> KnownLeader:
    known = KnownLeader()
    known.hear(news)
    return known


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_driver_follows_what_its_task_manager_writes(tmp_path: Path, services: Services) -> None:
    path = tmp_path / "leader.record"
    of_task_manager = KnownLeader()
    await tell_drivers(path, of_task_manager, services)
    driver = Follower("jm-0:1")
    follow_leader(locate_by_file(path, services), driver, MemoryNetwork(), services, is_informed=lambda: True)
    for leader in (FIRST, SECOND):
        of_task_manager.hear(LeaderNews(leader))
        await eventually(lambda leader=leader: driver.job_manager == leader.address)  # type: ignore[misc]


async def test_a_driver_whose_task_manager_is_gone_asks_the_other_job_managers(
    tmp_path: Path, services: Services
) -> None:
    path = tmp_path / "leader.record"
    write_leader_file(path, LeaderNews(FIRST, ("jm-1:1", "jm-2:1", "jm-3:1")))
    network = MemoryNetwork()
    known = locate_by_file(path, services)
    driver = Follower("jm-1:1")
    follow_leader(known, driver, network, services, is_informed=lambda: True)
    await eventually(lambda: known.leader() == FIRST)
    network.attach(
        "jm-3:1", TellsLeader(knowing(LeaderNews(SECOND)), ScriptedService({}))
    )  # jm-1 does not listen any more
    driver.on_silence()
    await eventually(lambda: driver.job_manager == "jm-2:1")


async def test_a_task_manager_without_zookeeper_learns_from_a_job_master(services: Services) -> None:
    network = MemoryNetwork()
    driver = ScriptedService({})
    network.attach("driver:1", TellsLeader(knowing(LeaderNews(SECOND)), driver))
    task_manager = Follower("jm-1:1")
    drivers = {"driver:1": AttemptScope("a" * 32, 1)}
    follow_leader(KnownLeader(), task_manager, network, services, is_informed=lambda: True, others=lambda: drivers)
    task_manager.on_silence()
    await eventually(lambda: task_manager.job_manager == "jm-2:1")
    assert driver.requests == []


async def test_news_of_an_older_leader_and_answers_without_one_change_nothing(services: Services) -> None:
    network, known = MemoryNetwork(), knowing(LeaderNews(SECOND, ("jm-1:1", "jm-3:1")))
    old, empty = ScriptedService({}), ScriptedService({})
    network.attach("jm-1:1", TellsLeader(knowing(LeaderNews(FIRST)), old))
    network.attach("jm-3:1", TellsLeader(knowing(LeaderNews(job_managers=("jm-4:1",))), empty))
    follower = Follower("jm-2:1")
    follow_leader(known, follower, network, services, is_informed=lambda: True)
    follower.on_silence()
    await eventually(lambda: "jm-4:1" in known.news().job_managers)
    assert (known.leader(), follower.job_manager) == (SECOND, "jm-2:1")


async def test_who_would_not_be_told_asks_though_the_leader_answers(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be cut off from ZooKeeper itself, and not know of its successor."""
    monkeypatch.setattr(inquiry, "UNINFORMED_INTERVAL", 0.001)
    network, known = MemoryNetwork(), knowing(LeaderNews(FIRST, ("jm-2:1",)))
    network.attach(FIRST.address, TellsLeader(knowing(LeaderNews(FIRST)), ScriptedService({})))
    network.attach(SECOND.address, TellsLeader(knowing(LeaderNews(SECOND)), ScriptedService({})))
    follower = Follower(FIRST.address)
    follow_leader(known, follower, network, services, is_informed=lambda: False)
    await eventually(lambda: follower.job_manager == SECOND.address)


async def test_nobody_is_asked_while_the_leader_answers(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "UNINFORMED_INTERVAL", 0.001)
    network, known, looks = MemoryNetwork(), knowing(LeaderNews(FIRST)), itertools.count()
    asked = ScriptedService({AskLeader: Ack()})
    network.attach(FIRST.address, asked)
    follow_leader(known, Follower(""), network, services, is_informed=lambda: next(looks) >= 0)
    await eventually(lambda: next(looks) > 10)
    assert asked.requests == []


async def test_all_but_the_question_who_leads_reaches_the_service() -> None:
    service = ScriptedService({Ack: Ack()})
    answering = TellsLeader(knowing(LeaderNews(FIRST, ("jm-3:1",))), service)
    told = await answering.serve(AskLeader())
    assert told == LeaderTold(epoch=7, address="jm-1:1", job_managers=("jm-1:1", "jm-3:1"))
    await answering.serve(Ack())
    assert service.requests == [Ack()]


async def test_the_file_of_another_cluster_names_nobodys_leader(tmp_path: Path, services: Services) -> None:
    """Its epochs may be larger than any that come here; the addresses in it are worth a question."""
    path = tmp_path / "leader.record"
    write_leader_file(path, LeaderNews(LeaderAddress(999, "other:1"), ("other:1",)))
    known = KnownLeader()
    await tell_drivers(path, known, services)
    known.hear(LeaderNews(FIRST))
    await eventually(lambda: read_leader_file(path).leader == FIRST)
    assert read_leader_file(path).job_managers == ("jm-1:1", "other:1")


@pytest.mark.parametrize("damage", [b"", b"torn", None])
async def test_a_file_that_cannot_be_read_ends_nothing(
    tmp_path: Path, services: Services, damage: bytes | None
) -> None:
    path = tmp_path / "leader.record"
    if damage is None:
        path.mkdir()
    else:
        path.write_bytes(damage)
    assert read_leader_file(path) == LeaderNews()
    known = locate_by_file(path, services)
    known.hear(LeaderNews(FIRST))
    if damage is not None:
        write_leader_file(path, LeaderNews(SECOND))
        await eventually(lambda: known.leader() == SECOND)


def test_drivers_of_other_users_read_the_file_and_cannot_change_it(tmp_path: Path) -> None:
    path = tmp_path / "leader.record"
    write_leader_file(path, LeaderNews(FIRST))
    assert path.stat().st_mode & 0o777 == 0o644

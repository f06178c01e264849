"""Whom the faults of real processes strike."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from campaign.processes import strikes
from campaign.processes.cluster import Member, RealCluster
from campaign.processes.plan import KINDS, NETWORK_KINDS, TRANSFER_KINDS, PlannedFault, draw_plan
from campaign.processes.transfers.hits import NETWORK, PEER, RECEIVER, SERVER, Hit, Transfer
from campaign.processes.transfers.strikes import TransferStrikes
from emberkeep.client.clusters.zookeeper_ensemble import ZooKeeperServer

CHANCE = random.Random(1)


class Running(RealCluster):
    """A cluster that was never started; those ``away`` count as not running."""

    away: frozenset[str] = frozenset()

    def is_running(self, member: Member) -> bool:
        return member.name not in self.away


def striker(tmp_path: Path, servers: int, *away: str) -> strikes.Striker:
    cluster = Running(tmp_path, zookeepers=servers)
    cluster.away = frozenset(away)
    return strikes.Striker(cluster, mock.Mock(), [])


async def chosen(who: strikes.Striker, what: str) -> list[str]:
    return sorted(member.name for member in await who._choose(what, CHANCE))


async def test_a_quorum_is_most_of_the_servers_that_run(tmp_path: Path) -> None:
    assert len(await chosen(striker(tmp_path, 3), "zookeeper-quorum")) == 2
    assert await chosen(striker(tmp_path, 3, "zk-2"), "zookeeper-quorum") == ["zk-1", "zk-3"]
    assert await chosen(striker(tmp_path, 3, "zk-1", "zk-2"), "zookeeper-quorum") == []
    assert await chosen(striker(tmp_path, 1), "zookeeper-quorum") == ["zk-1"]


async def test_the_server_that_leads_the_others(tmp_path: Path) -> None:
    async def leads(server: ZooKeeperServer) -> bool:
        return server.number == 3

    with mock.patch.object(strikes, "leads", leads):
        assert await chosen(striker(tmp_path, 3), "zookeeper-leader") == ["zk-3"]
        assert await chosen(striker(tmp_path, 3, "zk-3"), "zookeeper-leader") == []


def test_only_hosts_have_faults_of_the_network() -> None:
    drawn = {
        hosted: {
            fault.kind for number in range(20) for fault in draw_plan(f"7-{number}", 40.0, 3.0, hosted=hosted).faults
        }
        for hosted in (False, True)
    }
    assert drawn == {False: set(KINDS), True: {*KINDS, *NETWORK_KINDS, *TRANSFER_KINDS}}


async def test_every_kind_of_process_fault_has_somebody(tmp_path: Path) -> None:
    who = striker(tmp_path, 3)
    who._leader_url = who._cluster.urls[0]

    async def leads(server: ZooKeeperServer) -> bool:
        return server.number == 1

    with mock.patch.object(strikes, "leads", leads):
        for kind in NETWORK_KINDS:
            assert await chosen(who, kind.partition(": ")[2]), kind
        for kind in KINDS:
            verb, _, what = kind.partition(" ")
            if what != "driver" and "gateway" not in what and verb in ("kill", "freeze", "stutter"):
                assert await chosen(who, what), kind


@pytest.mark.parametrize("kind", ["kill driver", "freeze driver", "stutter driver"])
async def test_a_driver_that_has_just_ended_was_not_struck(
    tmp_path: Path, kind: str, driver: subprocess.Popen[bytes]
) -> None:
    who = striker(tmp_path, 1)
    who._cluster.drivers = lambda *_: [driver.pid]  # type: ignore[method-assign]
    await who._strike(PlannedFault(0.0, kind, 0, 0.01))
    assert [strike.kind for strike in who.applied] == [kind]
    driver.kill()
    driver.wait()
    await who._strike(PlannedFault(0.0, kind, 0, 0.01))
    assert len(who.applied) == 1


class Stopped(Running):
    """A cluster whose processes can be stopped and killed, which is noted."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.killed: list[str] = []

    def kill(self, member: Member) -> None:
        self.killed.append(member.name)


async def test_a_fault_of_a_member_knows_the_transfers_that_it_has_hit(tmp_path: Path) -> None:
    who = strikes.Striker(Stopped(tmp_path), mock.Mock(), [])
    who._start = mock.AsyncMock()  # type: ignore[method-assign]
    who._transfers = mock.Mock(now=lambda: [Transfer("jm-1", name) for name in ("tm-1", "tm-2", "tm-3")])
    await who._strike(PlannedFault(0.0, "kill task manager", 0, 0.0))
    await who._strike(PlannedFault(0.0, "kill zookeeper", 0, 0.0))
    assert [(strike.kind, strike.transfers) for strike in who.applied] == [
        ("kill task manager", (RECEIVER,)),
        ("kill zookeeper", ()),
    ]


@pytest.mark.parametrize(
    ("kind", "transfer", "hit", "killed"),
    [
        ("kill blob receiver", Transfer("jm-2", "tm-1"), Hit("tm-1", 0.0, (RECEIVER,)), ["tm-1"]),
        ("kill blob sender", Transfer("jm-2", "tm-1"), Hit("jm-2", 0.0, (SERVER,)), ["jm-2"]),
        ("kill blob sender", Transfer("tm-3", "tm-1"), Hit("tm-3", 0.0, (PEER,)), ["tm-3"]),
        ("cut blob transfer", Transfer("tm-3", "tm-1"), Hit("tm-3 <-> tm-1", 0.0, (NETWORK,)), []),
    ],
)
async def test_a_fault_aims_at_a_transfer(
    tmp_path: Path, kind: str, transfer: Transfer, hit: Hit, killed: list[str]
) -> None:
    cluster, looks = Stopped(tmp_path), [[], [transfer]]
    hosts, start = mock.Mock(lose=mock.AsyncMock()), mock.AsyncMock()
    aimed = TransferStrikes(cluster, hosts, mock.Mock(now=lambda: looks.pop(0)), start)
    found = await aimed.strike(PlannedFault(0.0, kind, 0, 0.0), CHANCE)
    assert Hit(found.target, 0.0, found.transfers) == hit
    assert cluster.killed == [call.args[0].name for call in start.await_args_list] == killed
    pairs = [(transfer.sender, transfer.receiver), (transfer.receiver, transfer.sender)]
    assert hosts.lose.await_args_list == ([mock.call(pairs, 100), mock.call(pairs, 0)] if not killed else [])


async def test_a_fault_that_finds_no_transfer_has_hit_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign.processes.transfers.strikes._AIM_SECONDS", 0.05)
    cluster = Stopped(tmp_path)
    cluster.task_managers[0].busy = True
    busy = mock.Mock(now=lambda: [Transfer("jm-2", "tm-1")])
    for running in (mock.Mock(now=list), busy):
        aimed = TransferStrikes(cluster, mock.Mock(), running, mock.AsyncMock())
        assert not (await aimed.strike(PlannedFault(0.0, "kill blob receiver", 0, 0.0), CHANCE)).target
    assert cluster.killed == []

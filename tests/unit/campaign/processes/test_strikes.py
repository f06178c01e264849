"""Whom the faults of real processes strike."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from campaign.processes import strikes
from campaign.processes.cluster import Member, RealCluster
from campaign.processes.plan import KINDS, NETWORK_KINDS, PlannedFault, draw_plan
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
    assert drawn == {False: set(KINDS), True: {*KINDS, *NETWORK_KINDS}}


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

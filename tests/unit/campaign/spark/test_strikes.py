"""What counts as a fault of a history with PySpark."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from campaign.spark.plan import PlannedFault
from campaign.spark.strikes import Striker


class Cluster:
    """What a user sees of a cluster with one job. ``done``: set once its savepoints are complete."""

    def __init__(self, pid: int) -> None:
        self.done = asyncio.Event()
        self._driver = SimpleNamespace(pid=pid)

    async def job(self, _: str) -> Any:
        return SimpleNamespace(emberkeep=SimpleNamespace(driver=self._driver))

    async def savepoint(self, _: str, target: Path) -> str:
        await self.done.wait()
        return str(target)

    async def answers(self) -> None:
        """It does at once."""


class Stream:
    """A job whose queries are not looked at."""

    job_id = "1" * 32
    moving = False

    def __init__(self, place: Path) -> None:
        self.place = place

    def reached(self) -> dict[str, Any]:
        return {}


def striker(cluster: Cluster, place: Path) -> Striker:
    return Striker(SimpleNamespace(), cluster, [Stream(place)])  # type: ignore[arg-type, list-item]


async def test_a_driver_that_is_killed_in_a_savepoint(tmp_path: Path, driver: subprocess.Popen[bytes]) -> None:
    cluster = Cluster(driver.pid)
    who = striker(cluster, tmp_path)
    striking = asyncio.create_task(who.strike(PlannedFault("kill driver in savepoint", 0, 0.0, 0.0, False)))
    await asyncio.to_thread(driver.wait, 30)
    cluster.done.set()
    await striking
    assert [strike.kind for strike in who.applied] == ["kill driver in savepoint"]


async def test_a_driver_is_not_killed_after_the_savepoint_and_then_the_fault_is_another(
    tmp_path: Path, driver: subprocess.Popen[bytes]
) -> None:
    cluster = Cluster(driver.pid)
    cluster.done.set()
    who = striker(cluster, tmp_path)
    async with asyncio.timeout(30):
        await who.strike(PlannedFault("kill driver in savepoint", 0, 3600.0, 0.0, False))
    assert [strike.kind for strike in who.applied] == ["savepoint"]
    assert driver.poll() is None


async def test_a_driver_that_has_just_ended_was_not_killed(tmp_path: Path, driver: subprocess.Popen[bytes]) -> None:
    driver.kill()
    driver.wait()
    who = striker(Cluster(driver.pid), tmp_path)
    await who.strike(PlannedFault("kill driver", 0, 0.0, 0.0, False))
    assert who.applied == []

"""Faults of state gateways, that is, of their task managers' processes, while a job stores an entry."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from campaign.processes.clients import ClientsWorld
from campaign.processes.cluster import Member, RealCluster, send, stand_still
from campaign.processes.gateways.late_writer import doors_of, read_door
from campaign.processes.plan import PlannedFault
from campaign.processes.transfers.hits import NO_HIT, Hit, hit_at
from campaign.processes.transfers.running import RunningTransfers

# Within which a job comes to the place between an upload and its rename: it may have to start first.
_AIM_SECONDS = 15.0
_LOOKS = 0.005
_LONGEST_RENAME = 0.02  # seconds
_DURING_RENAME = 0.5  # share of the faults that strike while the gateway renames; the others strike before it is asked


class GatewayStrikes:
    """Strikes between the upload of an entry and the end of its rename. ``start``: starts a member again."""

    def __init__(
        self,
        cluster: RealCluster,
        world: ClientsWorld,
        start: Callable[[Member], Awaitable[None]],
        transfers: RunningTransfers,
    ) -> None:
        self._transfers = transfers
        self._cluster = cluster
        self._world = world
        self._start = start
        self._aiming = asyncio.Lock()  # two faults would hold the same jobs

    async def strike(self, fault: PlannedFault, chance: random.Random) -> Hit:
        """Apply a fault. Return which driver's gateway it has hit, by the driver's pid."""
        if self._aiming.locked():
            return NO_HIT
        async with self._aiming:
            try:
                pid, member = await self._held()
                if member is None:
                    return NO_HIT
                member.busy = True
                if chance.random() < _DURING_RENAME:
                    self._release()
                    await asyncio.sleep(chance.uniform(0.0, _LONGEST_RENAME))
                at, transfers = time.monotonic(), hit_at({member.name}, self._transfers.now())
                striking = asyncio.create_task(self._hit(fault, member, pid))
                await asyncio.sleep(0)  # it begins
            finally:
                self._release()
        try:
            await striking
        finally:
            member.busy = False
        return Hit(str(pid), at, transfers)

    async def kill_driver(self, chance: random.Random) -> Hit:
        """Kill the driver of a job whose newest attempt was admitted. Return its pid."""
        doors = [doors_of(job) for job in self._world.jobs]
        admitted = {read_door(each[max(each)]).pid for each in doors if each}
        alive = sorted(admitted.intersection(await asyncio.to_thread(self._cluster.drivers)))
        at = time.monotonic()
        if not alive or not send(pid := chance.choice(alive), signal.SIGKILL):
            return NO_HIT
        return Hit(str(pid), at)

    async def _hit(self, fault: PlannedFault, member: Member, pid: int) -> None:
        verb, _, what = fault.kind.partition(" ")
        if verb == "kill":
            self._cluster.kill(member)
            await asyncio.sleep(fault.seconds)
            await self._start(member)
        else:
            await stand_still([member.pid, *([pid] if what == "gateway-node" else [])], fault.seconds)

    async def _held(self) -> tuple[int, Member | None]:
        """Return a driver that waits between an upload and its rename, and its task manager; None if there is none."""
        deadline = time.monotonic() + _AIM_SECONDS
        for place in self._places():
            (place / "held").unlink(missing_ok=True)  # of a driver that was killed there
        while time.monotonic() < deadline:
            for place in self._places():
                pid = _held_in(place)
                member = await self._host(pid) if pid else None
                if member is not None:
                    return pid, member
                if pid:
                    (place / "held").unlink(missing_ok=True)  # so that no look is spent on it again at once
                (place / "hold").touch()
            await asyncio.sleep(_LOOKS)
        return 0, None

    def _places(self) -> list[Path]:
        return [job.place for job in self._world.jobs if job.is_stored]

    def _release(self) -> None:
        for place in self._places():
            (place / "hold").unlink(missing_ok=True)

    async def _host(self, pid: int) -> Member | None:
        """Return the task manager of a driver, unless a fault holds it already."""
        for member in self._cluster.task_managers:
            if pid in await asyncio.to_thread(self._cluster.drivers, member):
                return member if self._cluster.is_running(member) and not member.busy else None
        return None


def _held_in(place: Path) -> int:
    """Return the pid of the driver that waits; 0 if none does."""
    try:
        return int((place / "held").read_text() or 0)
    except FileNotFoundError:
        return 0

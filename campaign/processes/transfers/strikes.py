"""Faults in the middle of a BLOB transfer: of its receiver, of its sender, and of the network between them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from campaign.processes.cluster import Member, RealCluster, stand_still
from campaign.processes.hosts import Hosts
from campaign.processes.plan import PlannedFault
from campaign.processes.transfers.hits import NETWORK, NO_HIT, Hit, Transfer, hit_at
from campaign.processes.transfers.running import RunningTransfers

_AIM_SECONDS = 15.0  # within which a transfer must run
_LOOKS = 0.02


class TransferStrikes:
    """``start``: starts a member again."""

    def __init__(
        self,
        cluster: RealCluster,
        hosts: Hosts,
        running: RunningTransfers,
        start: Callable[[Member], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._running = running
        self._start = start
        self._aiming = asyncio.Lock()  # each look costs time, and two faults would hit the same transfer

    async def strike(self, fault: PlannedFault, chance: random.Random) -> Hit:
        """Wait for a transfer, and apply a fault to it. Return NO_HIT if none comes, or another fault waits for one."""
        if self._aiming.locked():
            return NO_HIT
        verb, _, what = fault.kind.split()
        async with self._aiming:
            striking = await self._aimed(verb, what, fault.seconds, chance)
        return NO_HIT if striking is None else await striking

    async def _aimed(self, verb: str, what: str, seconds: float, chance: random.Random) -> asyncio.Task[Hit] | None:
        """Return a fault that has begun; None if no transfer comes."""
        deadline = time.monotonic() + _AIM_SECONDS
        while time.monotonic() < deadline:
            running = self._running.now()
            transfer = chance.choice(running) if running else None
            if transfer is not None and verb == "cut":
                return asyncio.create_task(self._cut(transfer, seconds))
            if transfer is not None:
                member = self._member(transfer.receiver if what == "receiver" else transfer.sender)
                if not member.busy and self._cluster.is_running(member):
                    member.busy = True
                    hit = Hit(member.name, time.monotonic(), hit_at({member.name}, running))
                    return asyncio.create_task(self._stop(verb, member, seconds, hit))
            await asyncio.sleep(_LOOKS)
        return None

    async def _stop(self, verb: str, member: Member, seconds: float, hit: Hit) -> Hit:
        try:
            if verb == "kill":
                self._cluster.kill(member)
                await asyncio.sleep(seconds)
                await self._start(member)
            else:
                await stand_still([member.pid], seconds)
        finally:
            member.busy = False
        return hit

    async def _cut(self, transfer: Transfer, seconds: float) -> Hit:
        at = time.monotonic()
        pairs = [(transfer.sender, transfer.receiver), (transfer.receiver, transfer.sender)]
        await self._hosts.lose(pairs, 100)
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._hosts.lose(pairs, 0)
        return Hit(f"{transfer.sender} <-> {transfer.receiver}", at, (NETWORK,))

    def _member(self, name: str) -> Member:
        return next(each for each in self._cluster.members if each.name == name)

"""Faults of the network between the hosts of a cluster's members."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from campaign.processes.cluster import Member
from campaign.processes.hosts import Hosts
from campaign.processes.plan import CUT, DELAY, LOSS, ONE_WAY, PlannedFault
from campaign.processes.transfers.hits import NO_HIT, Hit, hit_between
from campaign.processes.transfers.running import RunningTransfers

_FROM_ALL = 0.5  # share of the faults between a member and everything, clients included
_SHORTEST_DELAY, _LONGEST_DELAY = 0.02, 0.4  # seconds in each direction
_LEAST_LOST, _MOST_LOST = 5, 60  # percent of the packets


class NetworkStrikes:
    """Strikes what is between one member and others. ``choose``: returns the members that a word means now."""

    def __init__(
        self,
        hosts: Hosts,
        choose: Callable[[str, random.Random], Awaitable[list[Member]]],
        transfers: RunningTransfers,
    ) -> None:
        self._hosts = hosts
        self._choose = choose
        self._transfers = transfers
        self._delayed: set[str] = set()

    async def strike(self, fault: PlannedFault, chance: random.Random) -> Hit:
        """Apply a fault and end it. Return what it has hit."""
        at = time.monotonic()
        how, _, what = fault.kind.partition(": ")
        members = await self._choose(what, chance)
        if not members:
            return NO_HIT
        name = members[0].name
        others = self._hosts.others(name)
        if how == DELAY:
            transfers = hit_between([(name, other) for other in others], self._transfers.now())
            return Hit(await self._delay(name, fault, chance), at, transfers)
        if chance.random() >= _FROM_ALL:
            others = chance.sample(others, chance.randint(1, len(others) - 1))
        outwards = chance.random() < 0.5
        out, into = [(name, other) for other in others], [(other, name) for other in others]
        pairs = (out if outwards else into) if how == ONE_WAY else [*out, *into]
        percent = chance.randint(_LEAST_LOST, _MOST_LOST) if how == LOSS else 100
        transfers = hit_between(pairs, self._transfers.now())
        await self._hosts.lose(pairs, percent)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            await self._hosts.lose(pairs, 0)
        way = {CUT: "<->", LOSS: f"<{percent} %>", ONE_WAY: "->" if outwards else "<-"}[how]
        return Hit(f"{name} {way} {', '.join(others)}", at, transfers)

    async def _delay(self, name: str, fault: PlannedFault, chance: random.Random) -> str:
        if name in self._delayed:
            return ""
        self._delayed.add(name)
        seconds = chance.uniform(_SHORTEST_DELAY, _LONGEST_DELAY)
        try:
            await self._hosts.delay(name, seconds)
            await asyncio.sleep(fault.seconds)
        finally:
            await self._hosts.delay(name, 0.0)
            self._delayed.discard(name)
        return f"{name}, {seconds * 1e3:.0f} ms"

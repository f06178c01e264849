"""Tests of the tests: bugs in how standby processes are kept and taken must be caught.

The simulator runs the product's own pool and takes, so the bugs are planted there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.daemons.records.standby_messages import Take
from emberkeep.daemons.taskmanager import standby_takes
from emberkeep.daemons.taskmanager.standby_starts import StandbyDriver
from emberkeep.daemons.taskmanager.standby_takes import EndableTakes, StandbyTakes, TakeOver
from emberkeep.daemons.taskmanager.standbys import Standbys
from emberkeep.slots.standbys import events as ev
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.slots.standbys.members import StandbyState
from emberkeep.spark.errors import StandbyFailed
from tests.simulation.planted_standby_worlds import filled, stopped_for_good
from tests.simulation.planted_worlds import World
from tests.simulation.plants import Method, Plant, answering, check, returning


def not_marked_as_used(_: Method) -> Method:
    async def take(self: Standbys, profile: ev.StandbyProfile, wanted: TakeOver) -> int | str:
        kept = self._fitting(profile, wanted)
        if isinstance(kept, str):
            return kept
        assert kept.process is not None
        return await self.takes.turn(kept.name, kept.process, wanted)

    return take


def failing_the_start(original: Method) -> Method:
    async def turn(self: StandbyTakes, *arguments: Any) -> int | str:
        pid: int | str = await original(self, *arguments)
        if isinstance(pid, str):
            raise EmberkeepError(pid)
        return pid

    return turn


def in_the_background(_: Method) -> Method:
    async def discard(self: StandbyTakes, name: str, current: str) -> None:
        self.later = asyncio.create_task(self._kill(name, current))  # type: ignore[attr-defined]

    return discard


def without_an_answer(_: Method) -> Method:
    async def become(self: StandbyDriver, request: Any, launch: Any) -> None:
        del launch
        order = standby_order(request)
        try:
            await self._link.order(order)
            self._link.confirm()
        except OSError as error:
            raise StandbyFailed(str(error)) from error

    return become


def without_a_bound(_: Method) -> Method:
    async def become(self: StandbyDriver, request: Any, launch: Any) -> None:
        del launch
        try:
            await self._link.order(standby_order(request))
            if await self._link.receive() is None:
                raise StandbyFailed("it has ended")
            self._link.confirm()
        except OSError as error:
            raise StandbyFailed(str(error)) from error

    return become


def standby_order(request: StartRequest) -> Take:
    return Take(environ={}, directory="/", arguments=tuple(request.argv[-1:]))


def of_any_release(_: Method) -> Method:
    async def warmed(self: StandbyDriver, pid: int) -> None:
        self._link.began(pid)
        if await self._link.receive() is None:
            raise StandbyFailed("it has ended")

    return warmed


def wherever_there_is_a_place(original: Method) -> Method:
    def refill(self: StandbyPool, now: float) -> Iterator[Any]:
        known, self._free_mb = self._free_mb, 1_000_000
        try:
            yield from original(self, now)
        finally:
            self._free_mb = known

    return refill


def to_any_job(_: Method) -> Method:
    def ready(self: StandbyPool, profile: ev.StandbyProfile, job_id: JobId | None = None) -> str | None:
        del job_id
        able = (each.standby_id for each in self.standbys() if each.state is StandbyState.READY)
        return next((each for each in able if each.startswith(profile.kind.value)), None)

    return ready


PLANTS = {
    "a standby that was taken can be taken again": Plant(Standbys, "take", not_marked_as_used, ("q",), "standbys"),
    "a standby of another release is taken": Plant(StandbyDriver, "warmed", of_any_release, ("q",), "standbys"),
    "a standby that hangs while it is taken is not killed": Plant(
        StandbyTakes, "_discard", answering(None), ("r",), "poisoned"
    ),
    "a cold process starts before the standby that failed has ended": Plant(
        StandbyTakes, "_discard", in_the_background, ("r",), "poisoned"
    ),
    "a take that fails fails the start": Plant(StandbyTakes, "turn", failing_the_start, ("r",), "poisoned"),
    "a take that hangs is waited for": Plant(StandbyDriver, "become", without_a_bound, ("r",), "poisoned"),
    "a standby counts as taken before it has answered": Plant(
        StandbyDriver, "become", without_an_answer, ("r", "p"), "poisoned"
    ),
    "the end of a standby that failed is that of the job's process": Plant(
        standby_takes._End, "__call__", lambda _: lambda self, end: self._on_exit(end), ("r", "p"), "poisoned"
    ),
    "a take goes on though its process must not start": Plant(EndableTakes, "end", answering(None), ("r",), "standbys"),
    "standbys stay after the permanent stop of their task manager": Plant(
        Standbys, "leave", answering(None), ("s",), stopped_for_good
    ),
    "a task manager ends none of its standbys": Plant(Standbys, "_end", answering(None), ("s",), "standbys"),
    "the pool uses memory that jobs have": Plant(StandbyPool, "_refill", wherever_there_is_a_place, ("t",), "standbys"),
    "the pool gives no memory back": Plant(StandbyPool, "_give_back", returning(()), ("t",), filled),
    "a reserved standby goes to another job": Plant(StandbyPool, "ready", to_any_job, ("u",), "reserved"),
    "a standby stays reserved for a job that needs it no longer": Plant(
        StandbyPool, "_withdraw", returning(()), ("u", "s"), "reserved"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("world", [stopped_for_good, filled])
def test_without_a_planted_bug_a_world_is_sound(world: World) -> None:
    assert [world(number) for number in range(1, 31)] == [()] * 30

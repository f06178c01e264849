"""A standby process that fails while it is taken: nothing of it is left when the take is over."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.supervisor import Exit, OnExit
from emberkeep.base.errors import Conflict
from emberkeep.daemons.records.standby_messages import Import
from emberkeep.daemons.taskmanager import standby_takes
from emberkeep.daemons.taskmanager.standby_takes import StandbyTakes, TakeOver
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.jvm.executor_command import ExecutorLaunch

pytestmark = pytest.mark.anyio


class SlowSupervisor:
    """Ends processes only when told to."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended: list[str] = []

    async def start(self, request: StartRequest, on_exit: OnExit) -> int:
        raise NotImplementedError

    async def rename(self, name: str, new_name: str, on_exit: OnExit, share: Share | None = None) -> int:
        return 1

    async def raise_priority(self, name: str) -> None:
        raise NotImplementedError

    async def stop(self, name: str, grace: float) -> None:
        self.stopping.set()
        await self.may_end.wait()
        self.ended.append(name)


class Directories:
    def directory(self, name: str) -> Path:
        return Path(name)

    def has(self, name: str) -> bool:
        return True

    async def make(self, name: str) -> None:
        """Nothing is on disk here."""

    async def prepare(self, name: str, wanted: TakeOver) -> None:
        """Nothing is on disk here."""

    async def remove(self, name: str) -> None:
        """Nothing is on disk here."""

    def remove_later(self, name: str) -> None:
        """Nothing is on disk here."""

    def clean_up(self, used: AbstractSet[str]) -> None:
        """Nothing is on disk here."""


class Failing:
    """A standby process that cannot become a job's, or does not answer."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.asked = asyncio.Event()

    def start_request(self) -> StartRequest:
        raise NotImplementedError

    async def warmed(self, pid: int) -> None:
        raise NotImplementedError

    async def prepare(self, order: Import) -> None:
        raise NotImplementedError

    def why_unfit(self, request: StartRequest, launch: ExecutorLaunch | None) -> str:
        return ""

    async def become(self, request: StartRequest, launch: ExecutorLaunch | None) -> None:
        self.asked.set()
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        raise StandbyFailed("it has failed")

    def close(self) -> None:
        """There is no link."""


async def test_a_priority_that_cannot_be_raised_now_is_raised_later() -> None:
    """The processes of a machine cannot be listed while descriptors are short: this ends no task manager."""

    class Short(SlowSupervisor):
        raised: list[str]
        is_short = True

        async def raise_priority(self, name: str) -> None:
            if self.is_short:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.raised.append(name)

    supervisor = Short()
    supervisor.raised = []
    takes = StandbyTakes(Directories(), supervisor)
    takes.adopted("driver-a-1", "standby-1@1")
    takes.adopted("driver-b-1", "standby-2@1")
    await takes.raise_compilers()
    await takes.raise_compilers(at_once=True)
    supervisor.is_short = False
    await takes.raise_compilers()
    assert supervisor.raised == ["driver-a-1", "driver-b-1"]


@pytest.mark.parametrize("hangs", [False, True], ids=["it failed", "it was cancelled before"])
async def test_a_take_that_is_cancelled_while_its_process_ends_waits_for_that_end(hangs: bool) -> None:
    supervisor, process, exits = SlowSupervisor(), Failing(hangs=hangs), list[Exit]()
    request = StartRequest("driver-a-1", ("x",), {}, Path("/"), Path("/out"), Path("/err"))
    turning = asyncio.create_task(
        StandbyTakes(Directories(), supervisor).turn("standby-1", process, TakeOver(request, None, exits.append))
    )
    await process.asked.wait()
    if hangs:
        turning.cancel()
    await supervisor.stopping.wait()
    for _ in range(2):
        turning.cancel()
        await asyncio.sleep(0.01)
    assert not turning.done(), "the process still lives"
    supervisor.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await turning
    assert supervisor.ended == ["driver-a-1"]
    assert exits == []


@pytest.mark.parametrize("hangs", [False, True], ids=["it failed", "it was cancelled before"])
async def test_a_take_does_not_wait_for_ever_for_the_end_of_its_process(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """A killed process that waits for a mount that hangs may never end."""
    monkeypatch.setattr(standby_takes, "KILLED_SECONDS", 0.01)
    supervisor, process, exits = SlowSupervisor(), Failing(hangs=hangs), list[Exit]()
    request = StartRequest("driver-a-1", ("x",), {}, Path("/"), Path("/out"), Path("/err"))
    takes = StandbyTakes(Directories(), supervisor)
    turning = asyncio.create_task(takes.turn("standby-1", process, TakeOver(request, None, exits.append)))
    await process.asked.wait()
    if hangs:
        turning.cancel()
    with pytest.raises(asyncio.CancelledError if hangs else Conflict):
        async with asyncio.timeout(10):
            await turning
    assert supervisor.ended == []
    supervisor.may_end.set()
    while not supervisor.ended:  # noqa: ASYNC110 - the end is watched in the background
        await asyncio.sleep(0.005)
    assert exits == []

"""Calls to a platform that fail are repeated more and more rarely."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Unavailable
from emberkeep.daemons.jobmanager.resource_drivers.call_pauses import CallPauses

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0


class Server:
    """Each call takes ``seconds``, and fails while it ``is_away``."""

    def __init__(self, clock: Clock, seconds: float = 0.0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.is_away = True
        self.called: list[float] = []

    async def __call__(self) -> str:
        self.called.append(self.clock.now)
        self.clock.now += self.seconds
        if self.is_away:
            raise Unavailable("it is away")
        return "answer"


async def call_until(pauses: CallPauses, server: Server, end: float, kind: str = "list") -> None:
    """Call each half second, as the JobManager does."""
    while server.clock.now < end:
        with pytest.raises(Unavailable, match="it is away"):
            await pauses.call(kind, server)
        server.clock.now += 0.5


async def test_the_pauses_after_failures_grow_up_to_a_bound() -> None:
    clock = Clock()
    server = Server(clock)
    await call_until(CallPauses(lambda: clock.now), server, 64.0)
    assert server.called == [0, 1, 3, 7, 15, 31, 47, 63]


async def test_a_pause_begins_when_the_call_has_failed() -> None:
    clock = Clock()
    server = Server(clock, seconds=5.0)
    await call_until(CallPauses(lambda: clock.now), server, 20.0)
    assert server.called == [0, 6, 13]


async def test_after_an_answer_the_next_failure_has_a_short_pause_again() -> None:
    clock = Clock()
    server, pauses = Server(clock), CallPauses(lambda: clock.now)
    await call_until(pauses, server, 15.0)
    server.is_away, clock.now = False, 15.0
    assert await pauses.call("list", server) == "answer"
    server.is_away, server.called = True, []
    await call_until(pauses, server, 17.0)
    assert server.called == [15, 16]


async def test_calls_of_another_kind_do_not_wait() -> None:
    clock = Clock()
    server, pauses = Server(clock), CallPauses(lambda: clock.now)
    await call_until(pauses, server, 0.5)
    server.is_away = False
    assert await pauses.call("delete", server) == "answer"


async def test_a_failure_long_ago_is_forgotten() -> None:
    clock = Clock()
    server, pauses = Server(clock), CallPauses(lambda: clock.now)
    await call_until(pauses, server, 31.0)
    clock.now, server.called = 100.0, []
    await call_until(pauses, server, 102.0)
    assert server.called == [100, 101]

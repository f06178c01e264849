"""At most so many calls at once, and the newest order for each key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from emberkeep.base.actors import Actor
from emberkeep.jobmanager.bounded_calls import BoundedCalls
from tests.unit.jobmanager.cluster import in_virtual_time


def test_the_limit_holds_and_a_waiting_order_is_replaced_by_a_newer_one() -> None:
    async def scenario() -> None:
        calls = BoundedCalls(Actor("nobody"), 2)
        under_way: list[str] = []
        done: list[str] = []
        most = 0

        def work(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
            async def call() -> None:
                nonlocal most
                under_way.append(name)
                most = max(most, len(under_way))
                await asyncio.sleep(1.0)
                under_way.remove(name)
                done.append(name)

            return call

        for key in ("a", "b", "c", "c", "a"):
            calls.submit(key, work(f"{key}{len(done)}"))
        calls.submit("c", work("the newest c"))
        await asyncio.sleep(10.0)
        assert most == 2
        assert done == ["a0", "b0", "the newest c"]
        calls.submit("a", work("a again"))
        await asyncio.sleep(2.0)
        assert done[-1] == "a again"

    in_virtual_time(scenario)

"""Shares of what all hold together: a key that hangs keeps to its own."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from emberkeep.adapters.blocking.shares import WorkShares
from emberkeep.base.errors import RetryLater


async def hold(stack: contextlib.AsyncExitStack, shares: WorkShares, key: str, times: int) -> None:
    for _ in range(times):
        await stack.enter_async_context(shares.part(key, key))


async def test_a_key_has_its_share_and_all_have_the_total() -> None:
    shares = WorkShares(8, 2, 0.01)
    for _ in range(2):
        async with contextlib.AsyncExitStack() as stack:
            for key in ("a", "b"):
                await hold(stack, shares, key, 2)
                with pytest.raises(RetryLater, match=rf"{key} could not be reached.*earlier requests to it"):
                    await hold(stack, shares, key, 1)
            for key in ("c", "d", "e", "f"):
                await hold(stack, shares, key, 1)
            with pytest.raises(RetryLater, match=r"g could not be reached.*requests to 6 other places"):
                await hold(stack, shares, "g", 1)
        assert (shares._free, shares._held, shares._waiting) == (8, {}, {})


async def test_a_key_without_a_part_gets_the_next_one() -> None:
    shares, order = WorkShares(4, 4, 240.0), []

    async def come(key: str) -> None:
        async with shares.part(key, key):
            order.append(key)

    async with contextlib.AsyncExitStack() as stack:
        await hold(stack, shares, "a", 2)
        await hold(stack, shares, "b", 1)
        await hold(stack, shares, "c", 1)
        waiting = [asyncio.create_task(come(key)) for key in ("a", "d")]
        while len(shares._waiting) < 2:  # noqa: ASYNC110 - nobody else wants to know
            await asyncio.sleep(0)
    await asyncio.wait(waiting)
    assert order == ["d", "a"]


async def test_a_part_that_is_given_to_who_gives_up_is_given_back() -> None:
    shares = WorkShares(1, 1, 240.0)

    async def come() -> None:
        async with shares.part("b", "b"):
            pass

    async with shares.part("a", "a"):
        task = asyncio.create_task(come())
        while not shares._waiting:  # noqa: ASYNC110 - nobody else wants to know
            await asyncio.sleep(0)
    assert shares._held == {"b": 1}
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert (shares._free, shares._held, shares._waiting) == (1, {}, {})


async def test_who_waits_comes_in_turn_and_may_give_up() -> None:
    shares = WorkShares(5, 1, 240.0)
    order = []

    async def come(number: int) -> None:
        async with shares.part("a", "a"):
            order.append(number)

    async with shares.part("a", "a"):
        waiting = [asyncio.create_task(come(number)) for number in range(4)]
        while len(shares._waiting.get("a", ())) < 4:  # noqa: ASYNC110 - nobody else wants to know
            await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.wait(waiting)
    assert order == [0, 2, 3]
    assert (shares._free, shares._held, shares._waiting) == (5, {}, {})


async def test_an_error_inside_gives_the_part_back() -> None:
    shares = WorkShares(1, 1, 0.01)
    for _ in range(3):
        with pytest.raises(ValueError, match="inside"):
            async with shares.part("a", "a"):
                raise ValueError("inside")

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
    shares = WorkShares(5, 2, 0.01)
    async with contextlib.AsyncExitStack() as stack:
        await hold(stack, shares, "a", 2)
        await hold(stack, shares, "b", 2)
        for key in ("a", "b"):
            with pytest.raises(RetryLater, match=f"{key} could not be reached"):
                await hold(stack, shares, key, 1)
        await hold(stack, shares, "c", 1)
        with pytest.raises(RetryLater):
            await hold(stack, shares, "c", 1)
    assert shares._shares == {}
    async with contextlib.AsyncExitStack() as stack:
        await hold(stack, shares, "a", 2)
        await hold(stack, shares, "b", 2)
        await hold(stack, shares, "c", 1)


async def test_who_waits_comes_in_turn_and_may_give_up() -> None:
    shares = WorkShares(5, 1, 240.0)
    order = []

    async def come(number: int) -> None:
        async with shares.part("a", "a"):
            order.append(number)

    async with shares.part("a", "a"):
        waiting = [asyncio.create_task(come(number)) for number in range(4)]
        while shares._shares["a"].users < 5:  # noqa: ASYNC110 - nobody else wants to know
            await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.wait(waiting)
    assert order == [0, 2, 3]
    assert shares._shares == {}


async def test_an_error_inside_gives_the_part_back() -> None:
    shares = WorkShares(1, 1, 0.01)
    for _ in range(3):
        with pytest.raises(ValueError, match="inside"):
            async with shares.part("a", "a"):
                raise ValueError("inside")

"""Finds the smallest amount of a resource with which something works. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


async def smallest(works: Callable[[int], Awaitable[bool]], low: int, high: int, step: int) -> int | None:
    """Return the smallest multiple of ``step`` above ``low`` that works; None if not even ``high`` does.

    ``low`` is known not to work. All that is larger than something that works is taken to work as well.
    """
    if not await works(high):
        return None
    bad, good = low // step, high // step
    while good - bad > 1:
        middle = (bad + good) // 2
        if await works(middle * step):
            good = middle
        else:
            bad = middle
    return good * step

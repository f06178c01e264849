"""Show a value again and again until Ctrl-C. While the JobManager cannot be reached, show that and keep trying."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from emberkeep.base.errors import RetryLater
from emberkeep.cli.interrupts import Interrupts
from emberkeep.cli.views.surfaces import Surface

T = TypeVar("T")

INTERVAL = 2.0  # seconds between two reads
_OVERDUE = 5.0  # seconds without a reply after which that is shown


async def repeat(read: Callable[[], Awaitable[T]], surface: Surface[T]) -> None:
    """Show what ``read`` returns, again every INTERVAL seconds, until SIGINT, SIGTERM or SIGHUP.

    While ``read`` raises RetryLater or does not return, show that. Any other error ends this.
    """
    interrupts = Interrupts()
    with interrupts.catching(), surface:
        ended = asyncio.ensure_future(interrupts.wait_for(1))
        try:
            while not ended.done():
                await _show_next(read, surface, ended)
                await asyncio.wait({ended}, timeout=INTERVAL)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)


async def _show_next(read: Callable[[], Awaitable[T]], surface: Surface[T], ended: asyncio.Future[None]) -> None:
    """Read once and show the result, unless ``ended`` comes first."""
    reading = asyncio.ensure_future(read())
    either: set[asyncio.Future[Any]] = {reading, ended}
    try:
        while not reading.done() and not ended.done():
            await asyncio.wait(either, timeout=_OVERDUE, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() and not ended.done():
                surface.show_problem(f"no reply for {_OVERDUE:g} s or longer")
        if reading.done():
            surface.show(reading.result())
    except RetryLater as error:
        surface.show_problem(error.message)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

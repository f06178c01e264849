"""Calls to other processes, a bounded number at a time. A key prevents two calls about one thing at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from emberkeep.base.actors import Actor

Work = Callable[[], Coroutine[Any, Any, None]]


class BoundedCalls:
    """Runs calls as effects of ``actor``, at most ``limit`` at a time.

    The queue holds one entry per key, so the number of drivers and slots bounds it.
    """

    def __init__(self, actor: Actor, limit: int) -> None:
        self._actor = actor
        self._limit = limit
        self._queue: OrderedDict[Hashable, Work] = OrderedDict()
        self._running: set[Hashable] = set()

    def submit(self, key: Hashable, work: Work) -> None:
        """Run ``work`` when there is room. Replaces a waiting call with this ``key``; ignored while such a call runs.

        ``work`` must bound its own time.
        """
        if key not in self._running:
            self._queue[key] = work
            self._start()

    def is_running(self, key: Hashable) -> bool:
        """True if a call under ``key`` has begun and not ended."""
        return key in self._running

    def _start(self) -> None:
        while self._queue and len(self._running) < self._limit:
            key, work = self._queue.popitem(last=False)
            self._running.add(key)
            self._actor.start_effect(str(key), self._run(key, work), deadline=None)

    async def _run(self, key: Hashable, work: Work) -> None:
        try:
            await work()
        finally:
            self._running.discard(key)
        self._start()

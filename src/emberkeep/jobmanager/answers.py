"""Answers that people wait for: each is given, also when the one who was to give it stops in the middle of its work."""

from __future__ import annotations

import asyncio
from typing import Any

from emberkeep.base.errors import EmberkeepError


class Answers:
    """Owned by an actor, used in its loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[Any]] = set()

    def new(self) -> asyncio.Future[Any]:
        """An answer to be given. Whoever asked may be gone by then: an error that nobody fetches is no error."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        answer.add_done_callback(self._given)
        return answer

    def _given(self, answer: asyncio.Future[Any]) -> None:
        self._waiting.discard(answer)
        if not answer.cancelled():
            answer.exception()

    def give_up(self, error: EmberkeepError) -> None:
        """Nothing will be answered any more: ``error`` is the answer to all who still wait."""
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(error)

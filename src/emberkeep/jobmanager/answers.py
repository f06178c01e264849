"""Replies that callers wait for. Each caller gets a reply, even if the actor stops before the work is done."""

from __future__ import annotations

import asyncio
from typing import Any

from emberkeep.base.errors import EmberkeepError


class Answers:
    """The pending replies of one actor. Used only in the actor's event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[Any]] = set()

    def new(self) -> asyncio.Future[Any]:
        """Return a reply to be set later.

        The caller may be gone by then, so an error that is never fetched is not logged.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        answer.add_done_callback(self._given)
        return answer

    def _given(self, answer: asyncio.Future[Any]) -> None:
        self._waiting.discard(answer)
        if not answer.cancelled():
            answer.exception()

    def give_up(self, error: EmberkeepError) -> None:
        """Set ``error`` as the reply for all callers that still wait."""
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(error)

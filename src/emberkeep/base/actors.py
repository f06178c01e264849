"""Actors: each state has one owner, which is one task with one bounded inbox.

An actor's ``handle`` is a plain function. It cannot await, so nothing happens between its reading and its changing of
state. Slow work (RPC, files, processes) runs as named effects under a deadline, and its result comes back as an event.

A handler that raises is a bug: the actor's task ends with the error, and the caller of ``run`` (in ``daemons``) ends
the process. An effect must turn its own errors into events; an effect that raises ends the actor too.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from emberkeep.base.errors import RetryLater

EventT = TypeVar("EventT")

INBOX_LIMIT = 20_000  # events; far above what 10,000 task managers send between two turns of the loop


class Actor(abc.ABC, Generic[EventT]):
    """Base class of all actors. Subclasses implement ``handle(event) -> reply``."""

    def __init__(self, name: str, *, inbox_limit: int = INBOX_LIMIT) -> None:
        self.name = name
        self._inbox: asyncio.Queue[tuple[EventT, asyncio.Future[Any] | None]] = asyncio.Queue(inbox_limit)
        self._effects: dict[asyncio.Task[None], str] = {}
        self._failure: asyncio.Future[None] | None = None
        self._stopped = False

    @abc.abstractmethod
    def handle(self, event: EventT) -> Any:
        """Apply one event: change state, start effects, return the reply for ``ask``. Never awaits."""

    def tell(self, event: EventT) -> None:
        """Put an event into the inbox. Raises RetryLater if the inbox is full."""
        self._put(event, None)

    async def ask(self, event: EventT) -> Any:
        """Put an event into the inbox and return the reply of ``handle``. Its EmberkeepErrors are raised here.

        Raises RetryLater if the inbox is full, or if the actor has stopped or stops before it replies.
        """
        if self._stopped:
            raise self._stopped_error()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(event, reply)
        return await reply

    def _put(self, event: EventT, reply: asyncio.Future[Any] | None) -> None:
        try:
            self._inbox.put_nowait((event, reply))
        except asyncio.QueueFull:
            raise RetryLater(f"{self.name} is overloaded", hint="try again in a second") from None

    async def run(self) -> None:
        """Process the inbox until cancelled. Raises what a handler or an effect raised by mistake."""
        self._stopped = False
        self._failure = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(self._serve(), name=f"{self.name}-inbox")
        try:
            await asyncio.wait({serving, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            self._failure.result()
        finally:
            tasks = [serving, *self._effects]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not self._failure.done():
                self._failure.cancel()
            self._stopped = True
            self._refuse_waiting()

    async def _serve(self) -> None:
        from emberkeep.base.errors import EmberkeepError, IllegalTransition

        while True:
            event, reply = await self._inbox.get()
            try:
                result = self.handle(event)
            except IllegalTransition:
                self._refuse(reply)
                raise
            except EmberkeepError as error:
                # For a caller that waits, a refusal is an answer. Without such a caller it is a bug.
                if reply is None:
                    raise
                if not reply.done():
                    reply.set_exception(error)
            except BaseException:
                self._refuse(reply)
                raise
            else:
                if reply is not None and not reply.done():
                    reply.set_result(result)

    def _refuse_waiting(self) -> None:
        while not self._inbox.empty():
            self._refuse(self._inbox.get_nowait()[1])

    def _refuse(self, reply: asyncio.Future[Any] | None) -> None:
        """Fail a waiting ``ask``, because the actor stops and would never reply."""
        if reply is not None and not reply.done():
            reply.set_exception(self._stopped_error())

    def _stopped_error(self) -> RetryLater:
        return RetryLater(f"{self.name} has stopped", hint="try again in a second")

    def start_effect(
        self,
        name: str,
        work: Coroutine[Any, Any, None],
        *,
        deadline: float | None,
        on_deadline: Callable[[], None] | None = None,
    ) -> asyncio.Task[None]:
        """Run ``work`` concurrently with the inbox, for at most ``deadline`` seconds.

        ``deadline`` None: the work has a bound of its own.

        When the deadline passes, ``on_deadline`` is called. Without it, a missed deadline is an error of the actor.
        """
        task = asyncio.create_task(_bounded(work, deadline, on_deadline), name=f"{self.name}-{name}")
        self._effects[task] = name
        task.add_done_callback(self._effect_done)
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never awaits it
        return task

    def _effect_done(self, task: asyncio.Task[None]) -> None:
        self._effects.pop(task, None)
        if task.cancelled() or task.exception() is None:
            return
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(task.exception())  # type: ignore[arg-type]


async def _bounded(work: Awaitable[None], deadline: float | None, on_deadline: Callable[[], None] | None) -> None:
    try:
        async with asyncio.timeout(deadline):
            await work
    except TimeoutError:
        if on_deadline is None:
            raise
        on_deadline()

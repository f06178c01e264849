"""Actors: each state has one owner, which is one task with one bounded inbox.

The inbox holds turns: calls of the actor's own plain methods. A turn cannot await, so nothing else happens between
reading state and changing it. Slow work (RPC, files, processes) runs as named effects under a deadline, and its result
comes back as another turn.

A decorator makes a method a turn. ``asked``: the caller awaits the reply that the method returns. ``told``: the caller
continues at once, and there is no reply. So the type checker knows each question's arguments and reply, for the caller
and for the actor. See docs/adr/0021-one-machine-idiom-one-actor-idiom.md.

A turn that raises is a bug: the actor's task ends with the error, and the caller of ``run`` (in ``daemons``) ends the
process. Only an EmberkeepError in reply to a question is an answer. An effect must turn its own errors into turns; an
effect that raises ends the actor too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from emberkeep.base.errors import RetryLater

ReplyT = TypeVar("ReplyT")
P = ParamSpec("P")
ActorT = TypeVar("ActorT", bound="Actor | ActorPart")

INBOX_LIMIT = 20_000  # questions; far more than 10,000 task managers send in one round of the event loop


def asked(
    method: Callable[Concatenate[ActorT, P], ReplyT],
) -> Callable[Concatenate[ActorT, P], Coroutine[Any, Any, ReplyT]]:
    """Make a method of an actor a question: it runs as a turn, and callers await its reply.

    Raises what ``Actor.ask`` raises.
    """

    @functools.wraps(method)
    async def ask(actor: ActorT, /, *args: P.args, **kwargs: P.kwargs) -> ReplyT:
        return await actor.ask(functools.partial(method, actor, *args, **kwargs))

    return ask


def told(method: Callable[Concatenate[ActorT, P], None]) -> Callable[Concatenate[ActorT, P], None]:
    """Make a method of an actor a message without a reply: the call returns at once, and the method runs as a turn.

    Raises what ``Actor.tell`` raises.
    """

    @functools.wraps(method)
    def tell(actor: ActorT, /, *args: P.args, **kwargs: P.kwargs) -> None:
        actor.tell(functools.partial(method, actor, *args, **kwargs))

    return tell


class Actor:
    """Base class of all actors. Other code calls only methods that are ``asked`` or ``told``."""

    def __init__(self, name: str, *, inbox_limit: int = INBOX_LIMIT) -> None:
        self.name = name
        # Whoever asks can ask again, but the result of an effect comes once: messages have as much room again.
        self._inbox: asyncio.Queue[tuple[Callable[[], Any], asyncio.Future[Any] | None]] = asyncio.Queue(
            2 * inbox_limit
        )
        self._inbox_limit = inbox_limit
        self._effects: dict[asyncio.Task[None], str] = {}
        self._failure: asyncio.Future[None] | None = None
        self._stopped = False

    def handle(self, turn: Callable[[], ReplyT]) -> ReplyT:
        """Run one turn and return its reply. Subclasses may add what follows every turn. Never awaits."""
        return turn()

    def tell(self, turn: Callable[[], object]) -> None:
        """Put a turn into the inbox. Raises RetryLater if the inbox is full.

        ``ask`` leaves half of the inbox to such turns.
        """
        self._put(turn, None)

    async def ask(self, question: Callable[[], ReplyT]) -> ReplyT:
        """Put a question into the inbox and return the actor's reply. EmberkeepErrors of the turn are raised here.

        Raises RetryLater if too many turns wait, or if the actor has stopped or stops before it replies. An effect of
        the actor itself has as much room for its questions as messages have: the actor waits for it, and it is one of a
        bounded number.
        """
        if self._stopped:
            raise self._stopped_error()
        if self._inbox.qsize() >= self._inbox_limit and asyncio.current_task() not in self._effects:
            raise self._overloaded_error()
        reply: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        self._put(question, reply)
        return await reply

    def _put(self, turn: Callable[[], object], reply: asyncio.Future[Any] | None) -> None:
        try:
            self._inbox.put_nowait((turn, reply))
        except asyncio.QueueFull:
            raise self._overloaded_error() from None

    async def run(self) -> None:
        """Process the inbox until cancelled. Raises what a turn or an effect raised by mistake."""
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
            turn, reply = await self._inbox.get()
            try:
                result = self.handle(turn)
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

    def _overloaded_error(self) -> RetryLater:
        return RetryLater(f"{self.name} is overloaded", hint="try again in a second")

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


class ActorPart:
    """A part of an actor: it owns a piece of the actor's state, and its methods may be ``asked`` or ``told`` as well.

    Such methods run as turns of the actor. The part's plain methods are called by other turns of the actor.
    """

    def __init__(self, owner: Actor) -> None:
        self._owner = owner

    async def ask(self, question: Callable[[], ReplyT]) -> ReplyT:
        """See ``Actor.ask``."""
        return await self._owner.ask(question)

    def tell(self, turn: Callable[[], object]) -> None:
        """See ``Actor.tell``."""
        self._owner.tell(turn)


async def _bounded(work: Awaitable[None], deadline: float | None, on_deadline: Callable[[], None] | None) -> None:
    try:
        async with asyncio.timeout(deadline):
            await work
    except TimeoutError:
        if on_deadline is None:
            raise
        on_deadline()

"""Functions that live in Spark's Python workers, over many micro-batches, and are reached when the job ends.

Spark reuses workers, so what a module of a worker holds stays. It also lets go of all workers that were idle for a
minute: an instance then hands its state to the driver, which gives it to a later one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from emberkeep.api.function_link import Call, Channel, Link, Reply, join_driver
from emberkeep.api.function_state import decode_state, encode_state
from emberkeep.api.functions import close_once, open_once
from emberkeep.base.errors import EmberkeepError

T = TypeVar("T")


def _no_link() -> Link | None:
    return None


_LEAVE_SECONDS = 10.0
_lock = threading.Lock()
_instances: dict[str, _Instance] = {}
_driver_link = _no_link


class ExecutorFunction(Generic[T]):
    """Travels with the functions that are given to Spark; calling it answers this worker's instance."""

    def __init__(self, factory: Callable[[], T], name: str, link: Link | None = None) -> None:
        self.name = name
        self._factory = factory
        self._link = link

    def __call__(self) -> T:
        """The instance of this process, made and opened at the first call. Raises EmberkeepError (the driver is not
        reached), and what the instance raises."""
        with _lock:
            if self.name not in _instances:
                _instances[self.name] = _Instance(self.name, self._factory(), self._link)
            function: T = _instances[self.name].function
            return function

    def __reduce__(self) -> tuple[Any, ...]:
        return ExecutorFunction, (self._factory, self.name, self._link or _driver_link())


def on_executor(factory: Callable[[], T], name: str = "") -> ExecutorFunction[T]:
    """A function with one instance in each Python worker of the executors.

    ``factory`` makes an instance; it travels to the workers as all functions do that Spark is given. ``name`` tells the
    function apart from others; by default the factory's. An instance's ``initialize_state`` gets a list: the states
    that nobody has, all of them for the first instance that comes, none for the others.
    """
    return ExecutorFunction(factory, name or f"{factory.__module__}.{factory.__qualname__}")


def serve_link(link: Callable[[], Link | None]) -> None:
    """Handles that are serialised in this process from now on lead to the driver's endpoint."""
    global _driver_link  # noqa: PLW0603 - one endpoint per driver process
    _driver_link = link


class _Instance:
    """One function object, and the thread that answers the driver for it."""

    def __init__(self, name: str, function: Any, link: Link | None) -> None:
        self.function = function
        self._name = name
        self._channel: Channel | None = None
        self._is_closed = False
        if link is None:
            open_once(function)
            return
        self._channel, states = join_driver(link, name)
        try:
            if states and hasattr(function, "initialize_state"):
                function.initialize_state([decode_state(name, state) for state in states])
            open_once(function)
        except BaseException:
            self._channel.close()  # the driver takes the states back, for the next try
            raise
        self._answering = threading.Lock()
        threading.Thread(target=self._answer_all, name=f"emberkeep-function-{name}", daemon=True).start()
        _before_exit(self._leave)

    def _answer_all(self) -> None:
        assert self._channel is not None  # noqa: S101
        try:
            while True:
                call = self._channel.receive(Call)
                with self._answering:
                    self._channel.send(self._answer(call))
        except EmberkeepError:
            return  # the driver has ended, and this worker ends with its executor

    def _answer(self, call: Call) -> Reply:
        try:
            if call.method == "close":
                self._close()
                return Reply(number=call.number)
            method = getattr(self.function, call.method, None)
            result = method(*call.arguments) if callable(method) else None
            if call.method == "snapshot_state" and result is not None:
                return Reply(number=call.number, state=encode_state(self._name, result))
        except Exception as error:  # noqa: BLE001 - whatever the user's method raises is told to the driver
            return Reply(number=call.number, error=f"{type(error).__name__}: {error}")
        return Reply(number=call.number)

    def _leave(self) -> None:
        """Spark lets this worker go: the state stays with the driver, for a later instance. Nothing comes after
        ``close``, and where the driver is gone that is all."""
        assert self._channel is not None  # noqa: S101
        if not self._answering.acquire(timeout=_LEAVE_SECONDS) or self._is_closed:
            return
        try:
            if not self._channel.is_gone():
                self._channel.send(self._answer(Call(number=0, method="snapshot_state")))
        finally:
            self._close()

    def _close(self) -> None:
        self._is_closed = True
        close_once(self.function)


def _before_exit(action: Callable[[], None]) -> None:
    """Workers end by ``os._exit``, which calls nobody."""
    original = os._exit

    def leave(status: int) -> None:
        try:
            action()
        finally:
            original(status)

    os._exit = leave  # type: ignore[assignment]

"""Functions that live in Spark's Python workers, over many micro-batches, and are reached when the job ends.

Spark reuses workers, so what a module of a worker holds stays. It also lets go of all workers that were idle for a
minute: an instance then hands its state to the driver, which gives it to a later one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from emberkeep.api.executor_instance import Instance
from emberkeep.api.function_link import Link

T = TypeVar("T")


def _no_link() -> Link | None:
    return None


_lock = threading.Lock()
_instances: dict[str, Instance] = {}
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
                _instances[self.name] = Instance(self.name, self._factory(), self._link, _forget)
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


def _forget(instance: Instance) -> None:
    """The next call makes another one."""
    with _lock:
        for name in [name for name, known in _instances.items() if known is instance]:
            del _instances[name]

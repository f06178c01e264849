"""Functions that live in Spark's Python workers across many micro-batches and are called when the job ends.

Spark reuses workers, so the variables of a worker's modules persist. Spark also ends all workers that were idle for a
minute. An instance then hands its state to the driver, which gives it to a later instance.
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
    """A handle that travels with the functions given to Spark. Calling it returns this worker's instance."""

    def __init__(self, factory: Callable[[], T], name: str, link: Link | None = None) -> None:
        self.name = name
        self._factory = factory
        self._link = link

    def __call__(self) -> T:
        """Return the instance of this process, which the first call makes and opens.

        Raises EmberkeepError (the driver cannot be reached), and what the instance raises.
        """
        with _lock:
            if self.name not in _instances:
                _instances[self.name] = Instance(self.name, self._factory(), self._link, _forget)
            function: T = _instances[self.name].function
            return function

    def __reduce__(self) -> tuple[Any, ...]:
        return ExecutorFunction, (self._factory, self.name, self._link or _driver_link())


def on_executor(factory: Callable[[], T], name: str = "") -> ExecutorFunction[T]:
    """Return a function that has one instance in each Python worker of the executors.

    ``factory`` makes an instance; it travels to the workers like any function given to Spark. ``name`` distinguishes
    the function from others; by default it is the factory's name. States that no living instance has are passed, as a
    list, to the ``initialize_state`` of the next instance that begins; without such states it is not called.
    """
    return ExecutorFunction(factory, name or f"{factory.__module__}.{factory.__qualname__}")


def serve_link(link: Callable[[], Link | None]) -> None:
    """Make handles that this process serialises from now on refer to the driver's endpoint."""
    global _driver_link  # noqa: PLW0603 - one endpoint per driver process
    _driver_link = link


def _forget(instance: Instance) -> None:
    """Forget an instance, so that the next call makes another one."""
    with _lock:
        for name in [name for name, known in _instances.items() if known is instance]:
            del _instances[name]

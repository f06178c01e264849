"""The functions of this process that take part in the job's life."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection
from typing import Any

import msgspec

_GRACEFUL = ("prepare_to_shutdown", "shutdown", "snapshot_state", "initialize_state", "notify_checkpoint_complete")


class Registered(msgspec.Struct, frozen=True):
    """``name`` tells the function apart from the others of the job, in each of its starts."""

    name: str
    function: Any


class Registry:
    """Keeps functions in the order in which they came. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Registered] = []
        self._added: Callable[[Registered], None] = lambda _: None
        self._has_other_end: Callable[[], bool] = lambda: False

    def add(self, function: Any, name: str = "") -> None:
        """One that is known already stays known under its first name."""
        with self._lock:
            if any(entry.function is function for entry in self._entries):
                return
            taken = {entry.name for entry in self._entries}
            entry = Registered(numbered(name or name_of(function), taken), function)
            self._entries.append(entry)
            added = self._added
        added(entry)

    def entries(self) -> list[Registered]:
        with self._lock:
            return list(self._entries)

    def follow(self, added: Callable[[Registered], None], has_other_end: Callable[[], bool]) -> None:
        """``added`` is called for each function that comes from now on. ``has_other_end``: the job was stopped or
        cancelled, or has failed, so whatever the script does now, its sources have not ended."""
        with self._lock:
            self._added, self._has_other_end = added, has_other_end

    def has_other_end(self) -> bool:
        return self._has_other_end()


REGISTRY = Registry()


def register(function: Any, name: str = "") -> Any:
    """Let an object's methods be called as the job comes to savepoints and to its end; returns the object.

    Not needed for what is given to ``foreachBatch``, ``foreach`` or ``addListener``: Emberkeep finds these by itself.
    ``name``: what its state is called in savepoints; by default its class, with a number from the second object on.
    Where Emberkeep does not run the process, nothing is called.
    """
    REGISTRY.add(function, name)
    return function


def takes_part(function: Any) -> bool:
    """Whether an object has any method of a function's life; ``close`` alone counts, too."""
    if isinstance(function, type):
        return False
    if outlives_batches(function):
        return True
    return not hasattr(function, "__qualname__") and callable(getattr(function, "close", None))


def outlives_batches(function: Any) -> bool:
    """Whether an object has a method that is called for a savepoint or a good end."""
    if isinstance(function, type):
        return False
    return any(callable(getattr(function, name, None)) for name in _GRACEFUL)


def name_of(function: Any) -> str:
    kind = type(function)
    path = getattr(function, "path", "")
    name = f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}:{path}" if isinstance(path, str) and path else name


def numbered(wanted: str, taken: Collection[str]) -> str:
    """The name, with a number from the second one on."""
    names = itertools.chain([wanted], (f"{wanted}#{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)

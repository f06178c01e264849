"""The functions of this process that take part in the job's lifecycle."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection
from typing import Any

import msgspec

_GRACEFUL = ("prepare_to_shutdown", "shutdown", "snapshot_state", "initialize_state", "notify_checkpoint_complete")


class Registered(msgspec.Struct, frozen=True):
    """A registered function. ``name`` identifies it among the job's functions, and is the same in each attempt."""

    name: str
    function: Any


class Registry:
    """Keeps functions in the order of their registration. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._entries: list[Registered] = []
        self._added: Callable[[Registered], None] = lambda _: None
        self._has_other_end: Callable[[Any], bool] = lambda _: False

    def add(self, function: Any, name: str = "") -> None:
        """Register a function. A function that is registered already keeps its first name."""
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

    def follow(self, added: Callable[[Registered], None], has_other_end: Callable[[Any], bool]) -> None:
        """Call ``added`` for each function that is registered from now on.

        ``has_other_end``: True if the job was stopped or cancelled, or has failed; or if only the SparkContext in which
        a function was used has. Then the end of the script does not mean that its sources have ended.
        """
        with self._lock:
            self._added, self._has_other_end = added, has_other_end

    def has_other_end(self, function: Any) -> bool:
        return self._has_other_end(function)


REGISTRY = Registry()


def register(function: Any, name: str = "") -> Any:
    """Have an object's methods called when the job takes savepoints and when it ends; return the object.

    Not needed for objects given to ``foreachBatch``, ``foreach`` or ``addListener``: Emberkeep registers these itself.
    ``name``: the name of the object's state in savepoints; by default the object's class, with a number from the second
    object on. In a process that Emberkeep does not run, nothing is called.
    """
    REGISTRY.add(function, name)
    return function


def takes_part(function: Any) -> bool:
    """True if an object has any lifecycle method; False for a class.

    On a Python function, an attribute ``close`` alone does not count.
    """
    if isinstance(function, type):
        return False
    if outlives_batches(function):
        return True
    return not hasattr(function, "__qualname__") and callable(getattr(function, "close", None))


def outlives_batches(function: Any) -> bool:
    """True if an object has a method that is called for a savepoint or a graceful end."""
    if isinstance(function, type):
        return False
    return any(callable(getattr(function, name, None)) for name in _GRACEFUL)


def name_of(function: Any) -> str:
    kind = type(function)
    path = getattr(function, "path", "")
    name = f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}:{path}" if isinstance(path, str) and path else name


def numbered(wanted: str, taken: Collection[str]) -> str:
    """Return ``wanted`` if it is not ``taken``, else with the first free number: ``wanted#2``, ``wanted#3``, …"""
    names = itertools.chain([wanted], (f"{wanted}#{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)

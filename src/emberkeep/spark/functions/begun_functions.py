"""The functions of a driver that have begun: each gets its state and is opened once, and is in use until it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from emberkeep.api.function_state import decode_state
from emberkeep.api.functions import open_once
from emberkeep.api.registry import Registered, Registry
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark.errors import SparkUnavailable


class BegunFunctions:
    """Which functions of a registry have begun, and which of them have ended. Any thread may use it.

    A function begins once and ends once. It is living in between.
    """

    def __init__(self, registry: Registry, restored: Callable[[], Mapping[str, bytes]], seconds: float) -> None:
        """Begin nothing yet.

        - ``restored``: returns the states that functions begin with, by name; raises SparkUnavailable while there is no
          SparkContext.
        - ``seconds``: for which ``begin`` waits for another thread.
        """
        self._registry = registry
        self._restored = restored
        self._seconds = seconds
        # Never call the user's code while holding this lock.
        self._changed = threading.Condition()
        self._beginning: dict[str, int] = {}  # by function: the thread that is restoring its state and opening it
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def living(self) -> list[Registered]:
        """Return the living functions, in the order of their registration."""
        with self._changed:
            begun = self._begun - self._ended
        return [entry for entry in self._registry.entries() if entry.name in begun]

    def has_ended(self, entry: Registered) -> bool:
        """True if the function was closed: by Emberkeep, or by the script if it is a RichFunction."""
        with self._changed:
            return entry.name in self._ended or getattr(entry.function, "_life", "") == "closed"

    def begin_all(self) -> None:
        """Begin the functions that could not begin before, because there was no SparkContext."""
        for entry in self._registry.entries():
            self.begin(entry)

    def begin(self, entry: Registered) -> None:
        """Give a function its state and open it, once; return at once if this thread is already doing so.

        If another thread is doing so, wait for it. Raises UserFunctionFailed if that takes longer than the time limit.
        """
        with self._changed:
            if self._beginning.get(entry.name) == threading.get_ident():
                return
            if not self._changed.wait_for(lambda: entry.name not in self._beginning, self._seconds):
                raise UserFunctionFailed(f"open of {entry.name}: did not return within {self._seconds:g} s")
            if entry.name in self._begun:
                return
            self._beginning[entry.name] = threading.get_ident()
        try:
            self._begin_now(entry)
        finally:
            with self._changed:
                del self._beginning[entry.name]
                self._changed.notify_all()

    def _begin_now(self, entry: Registered) -> None:
        function = entry.function
        if hasattr(function, "initialize_state"):
            try:
                state = self._restored().get(entry.name)
            except SparkUnavailable:
                return  # the function begins when the first query starts
            if state is not None:
                function.initialize_state(decode_state(entry.name, state))
        with self._changed:
            self._begun.add(entry.name)
        open_once(function)

    def end_newest(self) -> Registered | None:
        """End the living function that was registered last, and return it; None if no function is living.

        It gets no further call, even if its close hangs.
        """
        living = self.living()
        if not living:
            return None
        with self._changed:
            self._ended.add(living[-1].name)
        return living[-1]

"""Objects given to ``foreach`` that take part in the job's lifecycle: one instance in each Python worker.

Spark copies the object given to ``foreach`` for each task. Emberkeep gives Spark a stand-in instead, which passes the
rows on to the worker's living instance.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from emberkeep.api.executor_functions import ExecutorFunction, on_executor
from emberkeep.api.functions import RichFunction, close_once, open_once
from emberkeep.api.registry import name_of, numbered


class ForeachObjects:
    """The objects of one driver process, with the names of their states in savepoints. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._known: list[tuple[Any, str]] = []

    def stand_in(self, function: Any) -> StandIn:
        """Return the writer to pass to Spark in place of ``function``.

        The name of the state of ``function`` in savepoints is chosen at the first call and stays the same.
        """
        with self._lock:
            name = next((name for known, name in self._known if known is function), None)
            if name is None:
                # The prefix separates it from what `on_executor` makes of the same class.
                name = numbered(f"foreach {name_of(function)}", {name for _, name in self._known})
                self._known.append((function, name))
        return StandIn(on_executor(functools.partial(_Living, function), name), type(function))


class StandIn:
    """A writer for ``foreach``. It has the object's class name, because that name distinguishes unnamed queries."""

    def __init__(self, instance: ExecutorFunction[_Living], kind: type) -> None:
        self._instance = instance
        self._began: _Living | None = None
        self.__module__, self.__qualname__ = kind.__module__, kind.__qualname__

    def open(self, partition_id: int, epoch_id: int) -> Any:
        """Return True if Spark must process the partition's rows of this micro-batch."""
        self._began = self._instance()
        return self._began.begin(partition_id, epoch_id)

    def process(self, row: Any) -> None:
        assert self._began is not None, "Spark opens it first"  # noqa: S101
        self._began.process(row)

    def close(self, error: Exception | None) -> None:
        began, self._began = self._began, None
        if began is not None:  # else making the instance failed, and its error is being raised
            began.end(error)


class _Living(RichFunction):
    """A worker's instance. For a RichFunction, ``open`` and ``close`` begin and end its lifecycle, as everywhere.

    For any other object they are Spark's, called for each partition of a micro-batch.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._is_rich = isinstance(function, RichFunction)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def begin(self, partition_id: int, epoch_id: int) -> Any:
        if self._is_rich or not hasattr(self._function, "open"):
            return True
        return self._function.open(partition_id, epoch_id)

    def process(self, row: Any) -> None:
        if callable(self._function):
            self._function(row)
        else:
            self._function.process(row)

    def end(self, error: Exception | None) -> None:
        if not self._is_rich and hasattr(self._function, "close"):
            self._function.close(error)

    # --- the lifecycle of a function ----------------------------------------------------------------------------------

    def open(self) -> None:
        open_once(self._function)

    def close(self) -> None:
        if self._is_rich:
            close_once(self._function)

    def prepare_to_shutdown(self) -> None:
        self._call("prepare_to_shutdown")

    def snapshot_state(self) -> Any:
        return self._call("snapshot_state")

    def initialize_state(self, state: Any) -> None:
        self._call("initialize_state", state)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._call("notify_checkpoint_complete", checkpoint_id)

    def shutdown(self) -> None:
        self._call("shutdown")

    def _call(self, method: str, *arguments: Any) -> Any:
        found = getattr(self._function, method, None)
        return found(*arguments) if callable(found) else None

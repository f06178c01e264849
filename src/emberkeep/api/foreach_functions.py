"""Objects that are given to ``foreach`` and take part in the job's life: one instance in each Python worker.

Spark makes a copy of what ``foreach`` got for each task. A stand-in is given to it for these objects, which passes the
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
    """Of a driver process, with the names that their states have in savepoints. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: list[tuple[Any, str]] = []

    def stand_in(self, function: Any) -> StandIn:
        """What Spark gets in the place of an object; one that is known keeps its name."""
        with self._lock:
            name = next((name for known, name in self._known if known is function), None)
            if name is None:
                # Apart from what `on_executor` has made of the same class.
                name = numbered(f"foreach {name_of(function)}", {name for _, name in self._known})
                self._known.append((function, name))
        return StandIn(on_executor(functools.partial(_Living, function), name), type(function))


class StandIn:
    """A writer for ``foreach``. Called as the object's class is, which tells queries without a name apart."""

    def __init__(self, instance: ExecutorFunction[_Living], kind: type) -> None:
        self._instance = instance
        self._began: _Living | None = None
        self.__module__, self.__qualname__ = kind.__module__, kind.__qualname__

    def open(self, partition_id: int, epoch_id: int) -> Any:
        """Whether Spark is to process the partition's rows of this micro-batch."""
        self._began = self._instance()
        return self._began.begin(partition_id, epoch_id)

    def process(self, row: Any) -> None:
        assert self._began is not None, "Spark opens it first"  # noqa: S101
        self._began.process(row)

    def close(self, error: Exception | None) -> None:
        began, self._began = self._began, None
        if began is not None:  # else there is no instance, and why is on its way
            began.end(error)


class _Living(RichFunction):
    """The instance of a worker. ``open`` and ``close`` of a RichFunction are of its life, as everywhere; those of any
    other object are Spark's, of a partition of a micro-batch."""

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

    # --- the life of a function ---------------------------------------------------------------------------------------

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

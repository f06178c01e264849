"""The interfaces of user functions that take part in a job's life. All of them are optional.

The order of calls, by how the job ends (source: Flink FLIP-46):

- its sources have ended: ``prepare_to_shutdown``, ``shutdown``, ``close``
- stopped with a drain: ``prepare_to_shutdown``, ``snapshot_state``, ``notify_checkpoint_complete``, ``shutdown``,
  ``close``
- stopped with a savepoint: ``snapshot_state``, ``notify_checkpoint_complete``, ``close``
- cancelled or failed: ``close``
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from emberkeep.api.registry import REGISTRY


@runtime_checkable
class WithGracefulShutdown(Protocol):
    """Told of a graceful end, never of a failure or a cancellation. Both methods may be called more than once."""

    def prepare_to_shutdown(self) -> None:
        """No more rows will come: flush, close what is open. Nothing becomes final yet."""

    def shutdown(self) -> None:
        """What was prepared is part of a durable savepoint, or there will be none: finish."""


class RichFunction:
    """A function with a life: resources from ``open`` to ``close``, and state that savepoints carry along.

    Works as a context manager, too: leaving the block without an error is the end of its sources, unless the job was
    stopped or cancelled; leaving it with one is a failure. ``close`` comes last in all cases. Derive from it, or write
    a class with any of these methods.
    """

    _life = "new"  # "new", "open", "closed"

    def open(self) -> None:
        """Get resources. Called once, before the first row and after ``initialize_state``."""

    def close(self) -> None:
        """Free resources, at every kind of end. May be called more than once."""

    def snapshot_state(self) -> Any:
        """State for a savepoint: bytes, or whatever JSON can hold. None: there is none."""
        return None

    def initialize_state(self, state: Any) -> None:
        """Called before ``open`` when the job starts from a savepoint, with what ``snapshot_state`` returned."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The savepoint that holds the state of the last ``snapshot_state`` is durable."""

    def __enter__(self) -> Self:
        open_once(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            well = kind is None and not REGISTRY.has_other_end()
            if well and self._life != "closed" and isinstance(self, WithGracefulShutdown):
                self.prepare_to_shutdown()
                self.shutdown()
        finally:
            close_once(self)


class FollowsQueries(RichFunction):
    """A function of this package that is told of each query that the script has started."""

    def query_started(self, query: str, checkpoint: str) -> None:
        """``query``: its id, which stays over restarts. ``checkpoint``: where it is now, as Spark reaches it. It runs
        already, so do not wait for its batch."""


def open_once(function: Any) -> None:
    """Open a function that has ``open``, if it is not open."""
    if isinstance(function, RichFunction) and function._life == "new":
        function.open()
        function._life = "open"


def close_once(function: Any) -> None:
    """Close a function that has ``close``; a RichFunction not twice."""
    if isinstance(function, RichFunction):
        if function._life == "closed":
            return
        function._life = "closed"
    close = getattr(function, "close", None)
    if callable(close):
        close()


def keeps_state(function: Any) -> bool:
    """Whether a function has a ``snapshot_state`` of its own."""
    method = getattr(function, "snapshot_state", None)
    return callable(method) and getattr(method, "__func__", None) is not RichFunction.snapshot_state

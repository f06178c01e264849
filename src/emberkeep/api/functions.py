"""The interfaces of user functions that take part in a job's lifecycle. All methods are optional.

The order of calls depends on how the job ends (source: Flink FLIP-46):

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
    """Called during a graceful shutdown, never after a failure or a cancellation.

    Both methods may be called more than once.
    """

    def prepare_to_shutdown(self) -> None:
        """Flush and close what is open: all rows have arrived. Do not make anything final yet."""

    def shutdown(self) -> None:
        """Finish: what was prepared is part of a durable savepoint, or there will be no savepoint."""


class RichFunction:
    """A function with a lifecycle: resources from ``open`` to ``close``, and state that savepoints contain.

    It also works as a context manager. Leaving the block without an error counts as the end of its sources, unless the
    job was stopped or cancelled, or has failed. Leaving the block with an error counts as a failure. ``close`` comes
    last in all cases. Derive from this class, or write a class with any of these methods.
    """

    _life = "new"  # "new", "open", "closed"

    def open(self) -> None:
        """Acquire resources. Called once, before the first row and after ``initialize_state``."""

    def close(self) -> None:
        """Free resources, however the job ends. May be called more than once."""

    def snapshot_state(self) -> Any:
        """Return the state for a savepoint: bytes, or anything that JSON can represent. None: no state."""
        return None

    def initialize_state(self, state: Any) -> None:
        """Restore what ``snapshot_state`` returned. Called before ``open`` if there is a state to restore.

        The state comes from the savepoint that the job starts from. On executors it is a list of states, which may also
        come from earlier instances (see ``on_executor``).
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Called when the savepoint with the state of the last ``snapshot_state`` is durable."""

    def __enter__(self) -> Self:
        open_once(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            well = kind is None and not REGISTRY.has_other_end(self)
            if well and self._life != "closed" and isinstance(self, WithGracefulShutdown):
                self.prepare_to_shutdown()
                self.shutdown()
        finally:
            close_once(self)


class FollowsQueries(RichFunction):
    """A function of this package that is notified of each query that the script starts."""

    def query_started(self, query: str, checkpoint: str) -> None:
        """React to a query that has started. The query is running already, so do not wait for its batch.

        ``query``: its id, which stays the same across restarts. ``checkpoint``: the location at which Spark now reaches
        its checkpoint.
        """


def open_once(function: Any) -> None:
    """Open a RichFunction that was not opened yet."""
    if isinstance(function, RichFunction) and function._life == "new":
        function.open()
        function._life = "open"


def close_once(function: Any) -> None:
    """Close a function that has ``close``; a RichFunction only once."""
    if isinstance(function, RichFunction):
        if function._life == "closed":
            return
        function._life = "closed"
    close = getattr(function, "close", None)
    if callable(close):
        close()


def keeps_state(function: Any) -> bool:
    """True if a function defines ``snapshot_state``."""
    method = getattr(function, "snapshot_state", None)
    return callable(method) and getattr(method, "__func__", None) is not RichFunction.snapshot_state

"""What a procedure needs from the user's functions, wherever they run."""

from __future__ import annotations

from typing import Protocol


class UserFunctions(Protocol):
    """All functions of a job that take part in its lifecycle, in the driver and on executors, called in the order of
    END-3. Each call returns when every living instance has done it, and raises UserFunctionFailed (what, where, which
    function) when one has not. Calls block and may be repeated."""

    def prepare_to_shutdown(self) -> None:
        """Before the savepoint of a drain, or at the end of all sources: flush and close what is open."""

    def snapshot_state(self, checkpoint_id: int) -> dict[str, bytes]:
        """The state of every instance, by a name that tells it apart from the others of this job. Part of the
        savepoint."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The savepoint with that state is durable."""

    def shutdown(self) -> None:
        """After the last savepoint of a graceful end, before ``close``."""

    def close(self) -> None:
        """Free resources; at every kind of end. Failures are logged, never raised."""

"""Ports of a procedure: the user's functions, wherever they run, and object stores for savepoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class UserFunctions(Protocol):
    """All user functions of a job that take part in its lifecycle, in the driver and on executors.

    They are called in the order of END-3. Each call returns when every living instance has finished it. It raises
    UserFunctionFailed (what, where, which function) if an instance has not. Calls block and may be repeated.
    """

    def prepare_to_shutdown(self) -> None:
        """Flush and close open resources. Called before the savepoint of a drain, or at the end of all sources."""

    def snapshot_state(self, checkpoint_id: int) -> dict[str, bytes]:
        """Return the state of every instance, by a name that is unique in this job.

        It becomes part of the savepoint.
        """

    def losses(self) -> list[str]:
        """Describe the lost instances that no complete savepoint has reported yet.

        Such an instance was lost together with the data that it had taken in.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Announce that the savepoint with that state is durable."""

    def shutdown(self) -> None:
        """Do the final work of a graceful shutdown: after a drain's savepoint, or once all sources have ended."""

    def close(self) -> None:
        """Free resources, however the job ends. Failures are logged, never raised."""


class SavepointObjects(Protocol):
    """The objects of one savepoint in an object store, by name below its prefix (parts joined by "/").

    An object appears whole and durable, or not at all. Calls block and may come from several threads. Raises RetryLater
    (the store does not answer), UnknownOutcome (the answer to a change was lost; the change may be repeated), Fatal
    (the store refuses), besides the errors that each method names.
    """

    def put(self, name: str, source: Path) -> None:
        """Store a copy of a file that no longer changes, replacing an existing object."""

    def write(self, name: str, data: bytes) -> None:
        """Store a small object, replacing an existing one."""

    def read(self, name: str) -> Iterator[bytes]:
        """Return all bytes of one object, in pieces. Raises Absent."""

    def remove(self, first: str) -> None:
        """Delete all objects, the one named ``first`` before all others. Does nothing if no objects exist."""

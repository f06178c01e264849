"""What a procedure needs from outside: the user's functions, wherever they run, and object stores for savepoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
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

    def losses(self) -> list[str]:
        """Instances that were lost with what they had taken, and no complete savepoint has told of; in words."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The savepoint with that state is durable."""

    def shutdown(self) -> None:
        """After the last savepoint of a graceful end, before ``close``."""

    def close(self) -> None:
        """Free resources; at every kind of end. Failures are logged, never raised."""


class SavepointObjects(Protocol):
    """The objects of one savepoint in an object store, by name below its prefix (parts joined by "/"). One appears
    whole and durable, or not at all. Calls block and may come from several threads.

    Raises RetryLater (the store does not answer), UnknownOutcome (a change whose answer was lost: it may be repeated),
    Fatal (it refuses), beside what each method says.
    """

    def put(self, name: str, source: Path) -> None:
        """Store a copy of a file that nobody changes; replaces what is there."""

    def write(self, name: str, data: bytes) -> None:
        """Store a small object; replaces what is there."""

    def read(self, name: str) -> Iterator[bytes]:
        """All bytes of one object, in pieces. Raises Absent."""

    def remove(self, first: str) -> None:
        """All objects, the one with the name ``first`` before any other. Where there are none: fine."""

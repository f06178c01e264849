"""Both sides of the state gateway: what it offers to the protocol's adapter, and small things that it needs itself.

The stores that it needs are in ``local_state.ports``. Methods block and are called from worker threads, any number at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.local_state.model import Caller, FileStatus, StatePath


@dataclass(frozen=True)
class OpenedFile:
    """A file opened for reading. ``length``: number of bytes that ``pieces`` yields.

    ``pieces`` raises RetryLater if it cannot continue. Close ``pieces`` after use.
    """

    length: int
    pieces: Iterator[bytes]


class ContentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a file, or of everything below a directory, the directory itself included."""

    length: int  # bytes
    files: int
    directories: int


class IncomingFile(Protocol):
    """A file that is being received, by one thread at a time."""

    def write(self, data: bytes) -> None:
        """Append bytes. Raises RetryLater, Fatal."""

    def commit(self) -> FileStatus:
        """Store the file durably, and as a local copy if this node's disk allows it.

        Raises Exists, IsADirectory, NotADirectory, Fenced, RetryLater, UnknownOutcome, Fatal.
        """

    def abandon(self) -> None:
        """Drop what was received. Idempotent; does nothing once ``commit`` has returned."""


class StateFiles(Protocol):
    """A job's files as one of its processes sees them. ``resolve`` and ``is_admitted`` do not block.

    Every method raises Fenced (the caller's attempt has ended), RetryLater and Fatal, besides what its own docstring
    says.
    """

    def resolve(self, caller: Caller, path: str) -> StatePath:
        """Return the state path that a path at the gateway stands for. Raises InvalidInput."""

    def admit(self, caller: Caller) -> None:
        """Check the caller before an upload, the one request that a client does not repeat automatically."""

    def is_admitted(self, caller: Caller) -> bool:
        """True if ``admit`` would return at once, without a request to the durable store."""

    def status(self, caller: Caller, path: StatePath) -> FileStatus:
        """Return the status of a file or directory. Raises Absent."""

    def status_before_rename(self, caller: Caller, path: StatePath) -> FileStatus:
        """Return the status of a name that the caller will rename, or that will be the new name. Raises Absent.

        The status may be some seconds old: ``rename`` decides.
        """

    def listing(self, caller: Caller, path: StatePath) -> tuple[FileStatus, ...]:
        """Return the entries of a directory. Raises Absent."""

    def summary(self, caller: Caller, path: StatePath) -> ContentSummary:
        """Return the summary of a file or directory. Raises Absent, InvalidInput (too many files)."""

    def make_directory(self, caller: Caller, path: StatePath) -> None:
        """Make a directory and its parents. Raises NotADirectory."""

    def receive(self, caller: Caller, path: StatePath, *, overwrite: bool) -> IncomingFile:
        """Begin to write a file. If ``overwrite`` is False, ``commit`` raises Exists if there is a file already."""

    def look_for(self, caller: Caller, path: StatePath) -> str:
        """Check that there is a file to open and return its generation.

        Returns "" if a local copy answers the question without the durable store. Raises Absent, IsADirectory.
        """

    def open_file(
        self, caller: Caller, path: StatePath, offset: int, length: int | None, *, seen: str = ""
    ) -> OpenedFile:
        """Return the bytes from ``offset`` on. ``seen``: what ``look_for`` has just returned; "" checks again.

        Raises Absent, IsADirectory, InvalidInput (``offset`` is beyond the end).
        """

    def rename(self, caller: Caller, source: StatePath, target: StatePath, *, overwrite: bool) -> None:
        """Rename a file or directory. A caller that did not receive the reply may repeat the request.

        Raises Absent, Exists (``overwrite`` is False, or the target is a directory with entries), IsADirectory,
        NotADirectory, InvalidInput (to another root).
        """

    def delete(self, caller: Caller, path: StatePath, *, recursive: bool) -> bool:
        """Delete a file or directory. Return False if it did not exist.

        Raises NotEmpty (a directory with entries, and ``recursive`` is False), InvalidInput (the job's own root).
        """


class Rename(Compatible, frozen=True, kw_only=True):
    """A rename that a caller asked for."""

    caller: Caller
    root: str
    source: str
    target: str


class RenameJournal(Protocol):
    """The renames that were begun recently. The journal survives the end of the process, but not a power loss.

    A client that did not receive the reply repeats its request, whose source no longer exists. Only the journal can
    tell such a request from a rename of a file that never existed.
    """

    def begin(self, rename: Rename) -> bool:
        """Record a rename before it is done. Return False if the record is only in the memory of this process."""

    def void(self, rename: Rename) -> bool:
        """Record that a rename was refused and changed nothing.

        Return False if that is only in the memory of this process: the next process may still count the rename as
        begun.
        """

    def knows(self, rename: Rename) -> bool:
        """True if the rename was begun within the last few minutes and is not void.

        Raises Unavailable if the journal cannot be read.
        """


class Spool(Protocol):
    """Temporary storage for one file on its way to the durable store, if the disk of the local copies refuses it."""

    @property
    def path(self) -> Path: ...

    def write(self, data: bytes) -> None:
        """Append bytes. Raises Fatal."""

    def finish(self) -> int:
        """Return the number of bytes written; all of them can now be read at ``path``. Raises Fatal."""

    def discard(self) -> None:
        """Drop the file. Idempotent."""

"""Both sides of the gateway itself: what it offers to the protocol's adapter, and small things that it needs besides
the stores of ``local_state.ports``. Methods block, and are called from worker threads, any number at once.
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
    """``length``: bytes that ``pieces`` yields. It raises RetryLater when it cannot go on, and is to be closed."""

    length: int
    pieces: Iterator[bytes]


class ContentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Of a file or of everything below a directory, which counts itself."""

    length: int  # bytes
    files: int
    directories: int


class IncomingFile(Protocol):
    """A file that is being received, by one thread at a time."""

    def write(self, data: bytes) -> None:
        """Raises RetryLater, Fatal."""

    def commit(self) -> FileStatus:
        """Store it: durable, and where this node's disk allows it there too, when the call has returned.

        Raises Exists, IsADirectory, NotADirectory, Fenced, RetryLater, UnknownOutcome, Fatal.
        """

    def abandon(self) -> None:
        """Drop what was received. Idempotent; nothing after ``commit`` has returned."""


class StateFiles(Protocol):
    """A job's files as one of its processes sees them.

    Every method raises Fenced (the caller's attempt is over), RetryLater and Fatal, beside what it says.
    """

    def resolve(self, caller: Caller, path: str) -> StatePath:
        """Raises InvalidInput."""

    def admit(self, caller: Caller) -> None:
        """Before an upload, which a client does not repeat by itself as it does all else."""

    def status(self, caller: Caller, path: StatePath) -> FileStatus:
        """Raises Absent."""

    def listing(self, caller: Caller, path: StatePath) -> tuple[FileStatus, ...]:
        """Raises Absent."""

    def summary(self, caller: Caller, path: StatePath) -> ContentSummary:
        """Raises Absent, InvalidInput (too many files)."""

    def make_directory(self, caller: Caller, path: StatePath) -> None:
        """Raises NotADirectory."""

    def receive(self, caller: Caller, path: StatePath, *, overwrite: bool) -> IncomingFile:
        """Begin to write a file."""

    def look_for(self, caller: Caller, path: StatePath) -> str:
        """Whether there is a file to open: its generation, "" where nobody had to be asked. Raises Absent,
        IsADirectory."""

    def open_file(
        self, caller: Caller, path: StatePath, offset: int, length: int | None, *, seen: str = ""
    ) -> OpenedFile:
        """The bytes from ``offset`` on. ``seen``: what ``look_for`` has just told; "" asks again.

        Raises Absent, IsADirectory, InvalidInput (``offset`` is beyond the end).
        """

    def rename(self, caller: Caller, source: StatePath, target: StatePath, *, overwrite: bool) -> None:
        """Idempotent for a caller who did not get the answer. Raises Absent, Exists, IsADirectory, NotADirectory."""

    def delete(self, caller: Caller, path: StatePath, *, recursive: bool) -> bool:
        """False: was not there. Raises NotEmpty."""


class Rename(Compatible, frozen=True, kw_only=True):
    """A rename that a caller asked for."""

    caller: Caller
    root: str
    source: str
    target: str


class RenameJournal(Protocol):
    """Which renames were begun lately: it survives the end of the process, though not a loss of power.

    A client that lost the answer asks again, and its source is gone then: only whoever remembers can tell this from a
    rename of nothing.
    """

    def begin(self, rename: Rename) -> bool:
        """It is about to be done. False: it could not be noted, and is known until this process ends."""

    def void(self, rename: Rename) -> bool:
        """It was refused: nothing was done. False: as with ``begin``."""

    def knows(self, rename: Rename) -> bool:
        """Whether it was begun within the last minutes, and is not void. Raises Unavailable: it cannot be told."""


class Spool(Protocol):
    """A place for one file on its way to the durable store, when the disk of the local copies takes none."""

    @property
    def path(self) -> Path: ...

    def write(self, data: bytes) -> None:
        """Raises Fatal."""

    def finish(self) -> int:
        """Bytes written; all of them can be read at ``path`` now. Raises Fatal."""

    def discard(self) -> None:
        """Idempotent."""

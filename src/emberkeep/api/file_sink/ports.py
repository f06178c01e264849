"""What the sink needs from the file system and from Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` below the directory that was listed, with "/"; ``size`` in bytes."""

    path: str
    size: int


class SinkFiles(Protocol):
    """Files below two roots on one file system. Paths are absolute, with "/" between names.

    Every method raises RetryLater where the file system fails, which may leave the step done or not done.
    """

    def read(self, path: str) -> bytes:
        """Raises Absent."""

    def create(self, path: str, data: bytes) -> None:
        """A new file appears with all its bytes, durably, or not at all. Raises Conflict if it is there already."""

    def names(self, directory: str) -> list[str]:
        """What stands directly in it; [] where there is no such directory."""

    def files(self, directory: str) -> list[FoundFile]:
        """All files below a directory that Spark has written, at every depth. Raises RetryLater also where it is not
        there: it is made for no rows, too."""

    def move(self, source: str, target: str) -> None:
        """Atomically, making the target's directory. Where ``source`` is gone, or ``target`` is there, it was moved
        before."""

    def keep(self, paths: Sequence[str]) -> None:
        """Make these files, which others have written, survive a power loss as far as the file system can."""

    def delete(self, path: str) -> None:
        """A file, or a directory with all that is in it; one that is not there is no error."""


class Frames(Protocol):
    """What Spark does for the sink. ``frame``: a DataFrame."""

    def schema(self, frame: Any) -> str:
        """Of the rows as they are stored in pieces, without partition columns, as JSON."""

    def stage(self, frame: Any, directory: str) -> None:
        """Write a batch as Parquet into a new directory, with subdirectories for its partition values."""

    def evaluate(self, frame: Any) -> None:
        """Compute a batch whose rows are not wanted: Spark's state of this batch must come to be."""

    def rows(self, paths: Sequence[str]) -> list[int]:
        """How many rows each of these Parquet files holds."""

    def merge(self, paths: Sequence[str], schema: str, directory: str, *, is_part: bool) -> None:
        """Write the rows of these pieces as one file into a new directory: in the output's format, else as Parquet."""

    def committed(self, checkpoint: str, newest: int) -> int | None:
        """The newest batch that Spark has committed, as far as ``newest``; None where this checkpoint has none."""

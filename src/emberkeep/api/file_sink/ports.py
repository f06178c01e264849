"""The sink's ports: files and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a listing. ``path``: below the listed directory, with "/". ``size``: in bytes."""

    path: str
    size: int


class SinkFiles(Protocol):
    """Files below two roots on one file system. Paths are absolute, with "/" between names.

    Every method raises RetryLater if the file system fails; the step may or may not have been done.
    """

    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises Absent."""

    def create(self, path: str, data: bytes) -> None:
        """Create a file atomically and durably, with all its bytes. Raises Conflict if it exists already."""

    def names(self, directory: str) -> list[str]:
        """Return the names directly in a directory; [] if it does not exist."""

    def files(self, directory: str) -> list[ListedFile]:
        """Return all files below a directory that Spark has written, at every depth.

        A missing directory also raises RetryLater: Spark creates it even if there are no rows.
        """

    def move(self, source: str, target: str) -> None:
        """Move a file atomically, and make the target's directory.

        If ``source`` is missing or ``target`` exists, the file has already been moved.
        """

    def keep(self, paths: Sequence[str], root: str) -> None:
        """Make files that Spark has written below ``root`` survive a power loss, if the file system can do that.

        Spark has also made the directories between ``root`` and the files.
        """

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with all its contents; ignore a path that does not exist."""


class Frames(Protocol):
    """Spark's operations for the sink. ``frame``: a DataFrame."""

    def schema(self, frame: Any) -> str:
        """Return the schema, as JSON, of the rows as they are stored in pieces, without partition columns."""

    def stage(self, frame: Any, directory: str) -> None:
        """Write a batch as Parquet into a new directory, with subdirectories for its partition values."""

    def evaluate(self, frame: Any) -> None:
        """Compute a batch whose rows are not needed, so that Spark's state of this batch is created."""

    def rows(self, paths: Sequence[str]) -> list[int]:
        """Return how many rows each of these Parquet files has."""

    def merge(self, paths: Sequence[str], schema: str, directory: str, *, is_part: bool) -> None:
        """Write the rows of these pieces as one file into a new directory.

        The file is a part in the output's format if ``is_part``, else a Parquet piece.
        """

    def committed(self, checkpoint: str, newest: int) -> int | None:
        """Return the newest batch up to ``newest`` that Spark has committed; None if this checkpoint has none."""

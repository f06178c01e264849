"""Limits the wait for file systems that may never answer: a mount whose server is away blocks every caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.durable import make_directories, write_file
from emberkeep.base.files.errors import cannot_read, cannot_write
from emberkeep.base.processes.threads import start_thread

SECONDS = 10.0

ResultT = TypeVar("ResultT")


class FilePatience:
    """Runs work in a separate thread, and abandons work that takes too long.

    While abandoned work has not ended, calls raise Unavailable at once, so that no further thread hangs.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._hanging: threading.Thread | None = None
        self._made: set[Path] = set()  # directories whose names are durable

    def run(self, path: Path, work: Callable[[], ResultT]) -> ResultT:
        """Return the result of ``work``.

        Raises what ``work`` raises; Unavailable, naming ``path``, if ``work`` takes too long, or no thread can be
        started for it.
        """
        if self._hanging is not None and self._hanging.is_alive():
            raise _silent(path)
        piece = _Piece(work)
        try:
            thread = start_thread(piece.run, "file-patience")
        except Unavailable as error:
            raise Unavailable(f"{path} cannot be read now: {error.message}", hint=error.hint) from error
        thread.join(self._seconds)
        if thread.is_alive():
            self._hanging = thread
            raise _silent(path)
        return piece.result()

    def read(self, path: Path) -> bytes:
        """Return the bytes of a file. Raises Absent, Unavailable."""

        def read() -> bytes:
            try:
                return path.read_bytes()
            except OSError as error:
                raise cannot_read(path, error) from error

        return self.run(path, read)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file durably, creating its directory if missing. Raises Fatal (no space, …), Unavailable."""

        def write() -> None:
            try:
                self._make(path.parent)
                write_file(path, data)
            except OSError as error:
                raise cannot_write(path.parent, error) from error
            except Fatal as error:
                if isinstance(error.__cause__, OSError):
                    raise cannot_write(path, error.__cause__) from error
                raise

        self.run(path, write)

    def _make(self, directory: Path) -> None:
        if directory not in self._made or not directory.is_dir():
            make_directories(directory)
            self._made.add(directory)


class _Piece(Generic[ResultT]):
    def __init__(self, work: Callable[[], ResultT]) -> None:
        self._work = work
        self._results: list[ResultT] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - any error is passed to the waiting caller
            self._error = error

    def result(self) -> ResultT:
        if self._error is not None:
            raise self._error
        return self._results[0]


def _silent(path: Path) -> Unavailable:
    return Unavailable(
        f"{path} cannot be read now: its file system does not answer", hint="check the file system and its server"
    )

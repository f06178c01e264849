"""The files of the chronicle: a directory for each stream, and in it a file for each epoch.

A leader writes only to the files of its own epoch, so a deposed leader that still writes damages nothing. When a leader
first writes to a stream, it takes over the newest lines of earlier epochs into its own file, and deletes the files of
these epochs. A stream that has become too long is shortened in the same way. All methods block.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.durable import write_file
from emberkeep.base.files.rooted import RootedDirectories
from emberkeep.chronicle.lines import decode_lines, encode_line, in_order, kept_lines
from emberkeep.chronicle.occurrence import Occurrence

CLUSTER: Final = "cluster"  # the directory of the cluster's stream; a job's stream has the job's id
_FILE: Final = re.compile(r"([0-9]{15})\.events")
_STREAM: Final = re.compile(r"[0-9a-f]{32}|cluster")
_MOST_DECODED: Final = 16  # files whose content is kept in memory
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class _Decoded(NamedTuple):
    version: tuple[int, int, int]  # inode, size and time of the last change
    occurrences: tuple[Occurrence, ...]


class ChronicleFiles:
    """The streams of one job store, for one leader.

    ``most_job``, ``most_cluster``: the number of lines that are kept of a job's stream, and of the cluster's. A file
    may have up to twice as many before it is shortened. ``root`` and the two directories above it are created if
    missing; the directory above those must exist.
    """

    def __init__(self, root: Path, epoch: int, most_job: int, most_cluster: int) -> None:
        self._root = root
        self._epoch = epoch
        self._most_job = most_job
        self._most_cluster = most_cluster
        self._lengths: dict[str, int] = {}  # lines in the files of this epoch
        self._decoded: dict[Path, _Decoded] = {}  # the files that were read last, oldest first
        self._reading = threading.Lock()  # guards ``_decoded``
        self._torn: set[str] = set()  # streams whose last line may be incomplete
        self._directories = RootedDirectories(root.parent.parent, root.parent, root)
        self._writing = threading.Lock()  # a write whose caller was cancelled may still run

    def append(self, job_id: str, occurrences: Sequence[Occurrence]) -> None:
        """Add occurrences to a stream durably. If this fails, some of them may be stored. Raises OSError."""
        with self._writing:
            try:
                self._append(job_id, occurrences)
            except FileNotFoundError:  # somebody has removed the stream: the next try begins it anew
                self._lengths.pop(self._stream(job_id), None)
                raise

    def _append(self, job_id: str, occurrences: Sequence[Occurrence]) -> None:
        stream, most = self._stream(job_id), self._most_job if job_id else self._most_cluster
        path = self._path(stream, self._epoch)
        lines = [encode_line(each) for each in occurrences]
        if stream not in self._lengths:
            self._take_over(stream, lines, most)
        elif self._lengths[stream] + len(lines) > 2 * most:
            self._replace(path, [*path.read_bytes().splitlines(), *lines], most)
        else:
            self._add(stream, path, lines)

    def _add(self, stream: str, path: Path, lines: list[bytes]) -> None:
        descriptor = os.open(path, _APPEND, 0o600)
        try:
            rest = memoryview((b"\n" if stream in self._torn else b"") + b"".join(lines))
            self._torn.add(stream)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._torn.discard(stream)
        self._lengths[stream] += len(lines)

    def _take_over(self, stream: str, lines: list[bytes], most: int) -> None:
        """Begin this epoch's file with the newest lines of earlier epochs, then delete their files."""
        directory = self._root / stream
        if not directory.is_dir():
            self._directories.make(directory)
        epochs = self._epochs(stream)
        before = [line for epoch in epochs for line in _content(self._path(stream, epoch)).splitlines()]
        self._replace(self._path(stream, self._epoch), [*before, *lines], most)
        for epoch in epochs:
            if epoch < self._epoch:
                self._path(stream, epoch).unlink(missing_ok=True)

    def _replace(self, path: Path, lines: Iterable[bytes], most: int) -> None:
        whole = [line.rstrip(b"\n") + b"\n" for line in lines if line.strip()]
        kept = kept_lines(whole, most)
        try:
            write_file(path, b"".join(kept))
        except EmberkeepError as error:
            raise OSError(str(error)) from error
        self._lengths[path.parent.name] = len(kept)
        self._torn.discard(path.parent.name)

    def read(self, job_id: str) -> list[Occurrence]:
        """Return a stream, in order. Raises OSError."""
        stream = self._stream(job_id)
        return in_order(each for epoch in self._epochs(stream) for each in self._decode(self._path(stream, epoch)))

    def _decode(self, path: Path) -> tuple[Occurrence, ...]:
        """Return what is in a file. Open pages read it again and again, so an unchanged file is not decoded again."""
        try:
            status = path.stat()
        except FileNotFoundError:  # another leader has just taken it over
            return ()
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        with self._reading:
            known = self._decoded.pop(path, None)
        if known is None or known.version != version:
            known = _Decoded(version, tuple(decode_lines(_content(path))))
        with self._reading:
            self._decoded[path] = known
            while len(self._decoded) > _MOST_DECODED:
                del self._decoded[next(iter(self._decoded))]
        return known.occurrences

    def remove(self, job_id: str) -> None:
        """Delete the stream of a job. Raises OSError."""
        stream = self._stream(job_id)
        if stream == CLUSTER:
            return
        with self._writing:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._root / stream)
            self._lengths.pop(stream, None)
            self._torn.discard(stream)

    def _stream(self, job_id: str) -> str:
        stream = job_id or CLUSTER
        if not _STREAM.fullmatch(stream):
            raise ValueError(f"{stream!r} is not the id of a job")
        return stream

    def _epochs(self, stream: str) -> list[int]:
        """Return the epochs that have a file, in order."""
        try:
            names = [path.name for path in (self._root / stream).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in map(_FILE.fullmatch, names) if match)

    def _path(self, stream: str, epoch: int) -> Path:
        return self._root / stream / f"{epoch:015d}.events"


def _content(path: Path) -> bytes:
    """Return the content of a file; b"" if another leader has just taken it over."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""

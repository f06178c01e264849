"""The stored logs of jobs: ``<job>/<attempt>/<task manager>~<file>/<offset>-<epoch>.segment``. All methods block.

A leader writes only to segments of its own epoch, so a deposed leader that still writes damages nothing: what it adds
is a copy of what its successor gets. A segment that has become large is followed by another, so that the middle of a
log can be dropped by deleting files.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from emberkeep.adapters.kept_logs.remembered import Remembered, remember
from emberkeep.adapters.kept_logs.segments import Scanned, decompress, encode_piece, scan_segment
from emberkeep.base.errors import Absent, Damaged, InvalidInput, NewerFormat, Unavailable
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.errors import cannot_read, cannot_write, is_directory, names_if_there
from emberkeep.base.files.rooted import RootedDirectories
from emberkeep.base.ids import JobId, TaskManagerId, parse_job_id
from emberkeep.kept_logs.model import KeptLog, KeptLogKey, KeptLogList, LogPiece, PieceHeader, Position
from emberkeep.kept_logs.retention import FILE_COST, Segment, surplus
from emberkeep.kept_logs.stitching import Load, Stitched, stitch
from emberkeep.log_records.extents import missing_note

log = structlog.get_logger(__name__)

_SEGMENT: Final = re.compile(r"([0-9]{16})-([0-9]{15})\.segment")
_ATTEMPT: Final = re.compile(r"[0-9]{1,9}")
_MOST_POSITIONS: Final = 10_000  # logs whose positions are remembered
_MOST_SCANNED: Final = 128  # segments whose headers are remembered
_MOST_ENDS: Final = 20_000  # segments whose newest headers are remembered
_MOST_LOADED, _MOST_OPENED = 16, 2  # pieces and segments that one reader remembers
_SMALLEST_SEGMENT, _LARGEST_SEGMENT = 64 * 1024, 4 * 1024**2
_SEGMENTS_OF_JOB: Final = 64

_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class KeepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what is stored.

    ``most_bytes``: of one job. ``keep_ms``: for which a segment is kept after its last change; 0: without an end.
    """

    most_bytes: int
    keep_ms: int

    @property
    def segment_bytes(self) -> int:
        """The size at which a segment is followed by another."""
        return max(_SMALLEST_SEGMENT, min(_LARGEST_SEGMENT, self.most_bytes // _SEGMENTS_OF_JOB))


class _Tail(msgspec.Struct):
    """Where a log ends, and the segment to which this leader appends; its path is None before the first piece."""

    position: Position
    epoch: int = -1
    path: Path | None = None
    length: int = 0


class NewestChanges(NamedTuple):
    """When something was stored last by earlier leaders, and by this one; 0: nothing was."""

    earlier: int
    own: int


class StitchedLog(NamedTuple):
    """A log that can be read. ``load`` reads its pieces: it raises Damaged, Unavailable."""

    summary: KeptLog
    stitched: Stitched
    load: Load


class KeptLogFiles:
    """The stored logs below ``root``, whose parent must exist. Any thread may call the methods."""

    def __init__(self, root: Path, limits: KeepLimits) -> None:
        self._root = root
        self._limits = limits
        self._tails: OrderedDict[KeptLogKey, _Tail] = OrderedDict()
        self._sizes: dict[JobId, int] = {}  # what the segments of a job cost
        self._scans = Remembered[Scanned](_MOST_SCANNED)
        self._ends = Remembered[PieceHeader | None](_MOST_ENDS)
        self._directories = RootedDirectories(root.parent, root)
        self._writing = threading.Lock()  # a write whose caller has given up may still run

    # --- writing ------------------------------------------------------------------------------------------------------

    def keep(self, epoch: int, key: KeptLogKey, piece: LogPiece) -> Position:
        """Store a piece, see LogStore. Raises Unavailable, Fatal, NewerFormat."""
        with self._writing:
            tail = self._tails.get(key)
            if tail is None or tail.epoch != epoch:
                last = self._last_header(key)
                tail = _Tail(Position() if last is None else last.position, epoch)
            remember(self._tails, key, tail, _MOST_POSITIONS)
            header = piece.header
            adds_something = header.size > 0 or (header.is_last and not tail.position.is_whole)
            if adds_something and header.offset >= tail.position.end:
                self._append(key, tail, piece)
                if self._sizes.get(key.job_id, 0) > self._limits.most_bytes:
                    self._prune(key.job_id, oldest_ms=0)
            return tail.position

    def _append(self, key: KeptLogKey, tail: _Tail, piece: LogPiece) -> None:
        data, header = encode_piece(piece), piece.header
        if key.job_id not in self._sizes:
            self._sizes[key.job_id] = sum(segment.cost for segment in self._segments(key.job_id))
        if tail.path is None or tail.length + len(data) > self._limits.segment_bytes:
            directory = self._make(key)
            tail.path, tail.length = directory / f"{header.offset:016d}-{tail.epoch:015d}.segment", 0
        is_new = tail.length == 0
        try:
            descriptor = os.open(tail.path, _WRITE, 0o600)
            try:
                os.ftruncate(descriptor, tail.length)  # without the rest of a write that has failed
                rest, at = memoryview(data), tail.length
                while rest:
                    count = os.pwrite(descriptor, rest, at)
                    rest, at = rest[count:], at + count
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if is_new:
                sync_directory(tail.path.parent)
        except OSError as error:
            if isinstance(error, FileNotFoundError):  # the job's logs have just been removed
                self._tails.pop(key, None)
            raise cannot_write(tail.path, error) from error
        tail.length += len(data)
        tail.position = header.position
        self._sizes[key.job_id] += len(data) + (FILE_COST if is_new else 0)

    def _make(self, key: KeptLogKey) -> Path:
        directory = self._directory(key)
        if not is_directory(directory):
            try:
                self._directories.make(*reversed(directory.parents[:2]), directory)
            except OSError as error:
                raise cannot_write(directory, error) from error
        return directory

    def prune(self, job_id: JobId, now_ms: int) -> None:
        """Delete what is too old of a job, and the oldest of what is too much. Raises Unavailable."""
        with self._writing:
            self._prune(job_id, now_ms - self._limits.keep_ms if self._limits.keep_ms else 0)

    def _prune(self, job_id: JobId, oldest_ms: int) -> None:
        segments = self._segments(job_id)
        dropped = surplus(segments, self._limits.most_bytes, oldest_ms)
        writing = {tail.path for tail in self._tails.values()}
        for segment in dropped:
            path = self._root / job_id / segment.log / f"{segment.start:016d}-{segment.epoch:015d}.segment"
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(path, error) from error
            if path in writing:
                for tail in self._tails.values():
                    if tail.path == path:
                        tail.path, tail.length = None, 0
            self._remove_empty(path.parent)
        if dropped:
            log.info("dropped old parts of the logs of a job", job=job_id, segments=len(dropped))
        gone = set(dropped)
        self._sizes[job_id] = sum(segment.cost for segment in segments if segment not in gone)

    def _remove_empty(self, directory: Path) -> None:
        with contextlib.suppress(OSError):  # it is not empty
            while directory != self._root:
                directory.rmdir()
                directory = directory.parent

    def jobs(self) -> list[JobId]:
        """Return the jobs of which something is stored. Raises Unavailable."""
        found = []
        for name in names_if_there(self._root):
            with contextlib.suppress(InvalidInput):
                found.append(parse_job_id(name))
        return found

    def newest_ms(self, job_id: JobId, epoch: int | None) -> NewestChanges:
        """Return when something of a job was stored last before ``epoch``, and since then. Raises Unavailable."""
        segments = self._segments(job_id)
        earlier, own = [0], [0]
        for segment in segments:
            (earlier if epoch is None or segment.epoch < epoch else own).append(segment.changed_ms)
        return NewestChanges(earlier=max(earlier), own=max(own))

    def forget(self, known: set[JobId]) -> None:
        """Forget the sizes of jobs that are not ``known`` any more."""
        with self._writing:
            self._sizes = {job_id: size for job_id, size in self._sizes.items() if job_id in known}

    def _segments(self, job_id: JobId) -> list[Segment]:
        """Return the segments of a job. Raises Unavailable."""
        found = []
        for key in self._keys(job_id):
            directory = self._directory(key)
            for path, start, epoch in self._paths(directory):
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise cannot_read(path, error) from error
                found.append(
                    Segment(
                        log=str(directory.relative_to(self._root / job_id)),
                        start=start,
                        epoch=epoch,
                        stored=status.st_size,
                        changed_ms=status.st_mtime_ns // 1_000_000,
                    )
                )
        return found

    # --- reading ------------------------------------------------------------------------------------------------------

    def logs(self, job_id: JobId) -> KeptLogList:
        """Return what is stored of a job's logs; one that cannot be read does not hide the others.

        Raises Unavailable if nothing is known of any.
        """
        found, problems = list[KeptLog](), list[str]()
        for attempt in self._attempts(job_id):
            try:
                keys = list(self._keys_of(job_id, attempt))
            except Unavailable as error:
                problems.append(f"attempt {attempt}: {error.message}")
                continue
            found += filter(None, map(self._summary_of, keys))
        return KeptLogList(logs=found, problem="; ".join(problems))

    def _summary_of(self, key: KeptLogKey) -> KeptLog | None:
        """Return what is stored of a log; None if nothing is."""
        try:
            last = self._last_header(key)
        except (Absent, Unavailable, NewerFormat) as error:
            return KeptLog(key=key, problem=error.message)
        return None if last is None else _summary(key, last)

    def open(self, key: KeptLogKey) -> StitchedLog | None:
        """Return a stored log to read it; None if nothing of it is stored. Raises Unavailable, NewerFormat."""
        last = self._last_header(key)
        if last is None:
            return None
        places = [
            (path, piece) for path, _, _ in self._paths(self._directory(key)) for piece in self._scan(path).pieces
        ]
        loaded: OrderedDict[int, bytes] = OrderedDict()
        opened: OrderedDict[Path, bytes] = OrderedDict()

        def load(number: int) -> bytes:
            known = loaded.get(number)
            if known is None:
                path, piece = places[number]
                content = opened.get(path)
                if content is None:
                    content = _content(path)
                    remember(opened, path, content, _MOST_OPENED)
                data = content[piece.at : piece.at + piece.size]
                if len(data) < piece.size:
                    raise Damaged(f"{path}: it has become shorter")
                known = decompress(data, piece.header, str(path))
                remember(loaded, number, known, _MOST_LOADED)
            return known

        return StitchedLog(_summary(key, last), stitch([piece.header for _, piece in places], gap_note), load)

    def _last_header(self, key: KeptLogKey) -> PieceHeader | None:
        """Return the header of the last piece of a log; None if nothing of the log is stored."""
        paths = (path for path, _, _ in reversed(self._paths(self._directory(key))))
        return next((header for path in paths if (header := self._newest(path)) is not None), None)

    def _newest(self, path: Path) -> PieceHeader | None:
        """Return the header of the last piece in a segment. Listings need one of each log, so many are remembered."""
        return self._ends.of(path, lambda: _last(self._scan(path)))

    def _scan(self, path: Path) -> Scanned:
        """Return the pieces in a segment; none if it has just been dropped."""
        return self._scans.of(path, lambda: _scanned(path)) or Scanned((), 0, False)

    def _directory(self, key: KeptLogKey) -> Path:
        return self._root / key.job_id / str(key.attempt) / f"{key.task_manager}~{key.name}"

    def _keys(self, job_id: JobId) -> Iterator[KeptLogKey]:
        for attempt in self._attempts(job_id):
            yield from self._keys_of(job_id, attempt)

    def _attempts(self, job_id: JobId) -> Iterator[str]:
        return filter(_ATTEMPT.fullmatch, names_if_there(self._root / job_id))

    def _keys_of(self, job_id: JobId, attempt: str) -> Iterator[KeptLogKey]:
        for name in names_if_there(self._root / job_id / attempt):
            task_manager, separator, file = name.partition("~")
            key = KeptLogKey(job_id=job_id, attempt=int(attempt), task_manager=TaskManagerId(task_manager), name=file)
            with contextlib.suppress(InvalidInput):
                key.check()
                if separator:
                    yield key

    def _paths(self, directory: Path) -> list[tuple[Path, int, int]]:
        """Return the segments of a log, each with its first offset and its epoch, in order."""
        matches = ((name, _SEGMENT.fullmatch(name)) for name in names_if_there(directory))
        return [(directory / name, int(match[1]), int(match[2])) for name, match in matches if match]


def gap_note(missing: int, since_ms: int, until_ms: int) -> bytes:
    """Return the line that a reader sees in place of a gap."""
    times = f", written between {_moment(since_ms)} and {_moment(until_ms)}" if since_ms else ""
    return missing_note(missing, times)


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _summary(key: KeptLogKey, last: PieceHeader) -> KeptLog:
    return KeptLog(key=key, end=last.end, until_ms=last.until_ms, is_whole=last.is_last)


def _last(scanned: Scanned) -> PieceHeader | None:
    headers = (piece.header for piece in scanned.pieces)
    return max(headers, key=lambda header: (header.end, header.is_last), default=None)


def _scanned(path: Path) -> Scanned:
    """Read a segment. Raises FileNotFoundError, Unavailable."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise cannot_read(path, error) from error
    scanned = scan_segment(content, str(path))
    if scanned.damaged:
        log.warning("a part of a stored log is damaged or not written completely", segment=str(path))
    return scanned


def _content(path: Path) -> bytes:
    """Return the bytes of a segment. Raises Unavailable."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            return file.read()
    except FileNotFoundError as error:  # it has just been dropped
        raise Unavailable(f"{path} cannot be read now: {error.strerror}") from error
    except OSError as error:
        raise cannot_read(path, error) from error

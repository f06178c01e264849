"""Pieces of logs, and where they belong."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, TaskManagerId, parse_job_id, parse_task_manager_id

PIECE_BYTES: Final = 256 * 1024  # of a log, before compression, in one piece
MOST_STORED_BYTES: Final = PIECE_BYTES + 4096  # of a piece; text that cannot be compressed becomes a little longer
_MOST_ATTEMPT: Final = 10**9
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_FILES: Final = (
    (re.compile(r"driver\.stdout"), "driver-stdout"),
    (re.compile(r"driver\.stderr"), "driver-stderr"),
    (re.compile(r"executor-(?P<executor>\d{1,9})\.stdout"), "executor-stdout"),
    (re.compile(r"executor-(?P<executor>\d{1,9})\.stderr"), "executor-stderr"),
)


class LogWriter(msgspec.Struct, frozen=True):
    """Who writes a log file of a job: ``kind`` as in ``LogInfo``. ``executor_id`` is "" for the driver."""

    kind: str
    executor_id: str


def writer_of(name: str) -> LogWriter | None:
    """Return who writes the file called ``name`` in an attempt's directory of logs; None if it is no log."""
    for pattern, kind in _FILES:
        if match := pattern.fullmatch(name):
            return LogWriter(kind, match.groupdict().get("executor", ""))
    return None


class KeptLogKey(Compatible, frozen=True, kw_only=True):
    """Names one log: a file that one process of an attempt has written on one task manager."""

    job_id: JobId
    attempt: int
    task_manager: TaskManagerId
    name: str

    @property
    def log_id(self) -> str:
        """The log's id on its task manager."""
        return f"{self.job_id}-{self.attempt}-{self.name}"

    def check(self) -> None:
        """Raise InvalidInput unless a log can have this key."""
        parse_job_id(self.job_id)
        parse_task_manager_id(self.task_manager)
        if writer_of(self.name) is None or not 0 <= self.attempt < _MOST_ATTEMPT:
            raise InvalidInput(f"attempt {self.attempt} can have no log called {self.name[:64]!r}")


def parse_log_id(task_manager: TaskManagerId, log_id: str) -> KeptLogKey | None:
    """Return the key of a job's log with this id on its task manager; None if it is no log of a job."""
    job_id, _, rest = log_id.partition("-")
    attempt, _, name = rest.partition("-")
    if not attempt.isdecimal() or not attempt.isascii():
        return None
    key = KeptLogKey(job_id=JobId(job_id), attempt=int(attempt), task_manager=task_manager, name=name)
    try:
        key.check()
    except InvalidInput:
        return None
    return key


class PieceHeader(Compatible, frozen=True, kw_only=True):
    """Describes a piece: ``size`` bytes of a log from ``offset`` on.

    ``source``: where these bytes begin in the file. It differs from ``offset`` only once the file was replaced by a
    shorter one, which continues the log. ``since_ms`` and ``until_ms``: the bytes were written between these times.
    ``digest``: SHA-256 of the bytes. ``is_last``: nothing follows, because the process has ended.
    """

    offset: int
    size: int
    source: int
    since_ms: int
    until_ms: int
    digest: str
    is_last: bool = False

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def position(self) -> Position:
        """How far a log is stored whose last piece this is."""
        return Position(end=self.end, source=self.source + self.size, is_whole=self.is_last)


class LogPiece(Compatible, frozen=True, kw_only=True):
    """A piece with its bytes, compressed. An empty piece that is not the last one only asks for the position."""

    header: PieceHeader
    data: bytes

    def check(self) -> None:
        """Raise InvalidInput unless the numbers are within the limits of a piece."""
        header = self.header
        sound = (
            0 <= header.size <= PIECE_BYTES
            and len(self.data) <= MOST_STORED_BYTES
            and min(header.offset, header.source, header.since_ms, header.until_ms) >= 0
            and max(header.offset, header.source) < 2**53
            and _DIGEST.fullmatch(header.digest) is not None
        )
        if not sound:
            raise InvalidInput(f"a piece of a log has at most {PIECE_BYTES} bytes, and valid offsets, times and digest")


class Position(Compatible, frozen=True, kw_only=True):
    """How far a log is stored: up to ``end``, which is ``source`` in its file. ``is_whole``: the log has ended."""

    end: int = 0
    source: int = 0
    is_whole: bool = False


class KeptLog(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one log. ``until_ms``: when its newest piece was read; lines after that are not stored.

    ``problem``: why it cannot be read now; nothing else is known of it then. "": it can be read.
    """

    key: KeptLogKey
    end: int = 0
    until_ms: int = 0
    is_whole: bool = False
    problem: str = ""

    @property
    def missing_after_ms(self) -> int:
        """The time after which lines are missing; 0 if none is."""
        return 0 if self.is_whole else self.until_ms


class KeptLogList(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a job's logs. ``problem``: why logs of whole attempts are missing here; "": none is."""

    logs: list[KeptLog]
    problem: str = ""

"""Records of logs, and which of them a reader asks for."""

from __future__ import annotations

import enum
import re
from typing import Final

from emberkeep.base.compatible import Compatible

MOST_RECORD_BYTES: Final = 64 * 1024  # a longer record is cut into several
MOST_TEXTS: Final = 10  # texts that one selection looks for
MOST_TEXT_CHARACTERS: Final = 200


class Level(enum.Enum):
    """Level of a record, the least severe first. Names of other frameworks map to these: CRITICAL is fatal."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    FATAL = "fatal"

    @property
    def severity(self) -> int:
        return _SEVERITIES[self]

    @property
    def is_severe(self) -> bool:
        """True for warnings and errors."""
        return self.severity >= Level.WARN.severity


_SEVERITIES: Final = {level: number for number, level in enumerate(Level)}
# Every first line of a warning or an error, as ``headers`` knows them, contains one of these.
_SEVERE_MARK: Final = re.compile(
    rb"WARN|ERROR|CRITICAL|FATAL"
    rb"|[\[\"](?i:warn|error|critical|fatal)"
    rb"|Traceback \(most|Exception in thread|Warning: "
)


class Record(Compatible, frozen=True, kw_only=True):
    """One entry of a log with all its lines: a message with its stack trace, or one line of other output.

    ``offset``: of its first byte in the log. ``level`` is None if the output has none. ``time`` (Unix milliseconds) is
    that of the last record before it that has one, if the record itself has none; None if there is no such record.
    ``continues``: the record is the rest of one that begins before ``offset``. ``headed``: its first line, or that of
    the record that it continues, has a level or a time.
    """

    offset: int
    data: bytes
    level: Level | None = None
    time: int | None = None
    continues: bool = False
    headed: bool = False

    @property
    def end(self) -> int:
        """Offset of the first byte after the record."""
        return self.offset + len(self.data)


class Selection(Compatible, frozen=True, kw_only=True):
    """Records that contain all ``texts`` in any case, have at least this level, and a time between both ends.

    A record without a level has no level to compare, so ``level`` excludes it. One without a time is excluded by each
    bound that is set.
    """

    texts: tuple[str, ...] = ()
    level: Level | None = None
    since_ms: int = 0
    until_ms: int = 0  # 0: no such bound

    def matches(self, record: Record) -> bool:
        if self.level is not None and (record.level is None or record.level.severity < self.level.severity):
            return False
        if self._is_timed and (record.time is None or record.time < self.since_ms or self.ends_before(record)):
            return False
        return not self.texts or self._has_texts(record.data)

    def ends_before(self, record: Record, slack_ms: int = 0) -> bool:
        """True if the selection ends more than ``slack_ms`` before the record's time."""
        return self.until_ms > 0 and record.time is not None and record.time > self.until_ms + slack_ms

    def may_match_within(self, data: bytes, before: Record) -> bool:
        """False if no record in ``data``, which follows ``before``, can match: much cheaper than to examine each."""
        if self.texts and not self._has_texts(data):
            return False
        if self.level is None or not self.level.is_severe or (before.level is not None and before.level.is_severe):
            return True
        return _SEVERE_MARK.search(data) is not None

    @property
    def _is_timed(self) -> bool:
        return self.since_ms > 0 or self.until_ms > 0

    def _has_texts(self, data: bytes) -> bool:
        lower = data.lower()  # of ASCII letters only
        folded = ""
        for text in self.texts:
            if text.isascii():
                if text.lower().encode() not in lower:
                    return False
                continue
            folded = folded or data.decode(errors="replace").casefold()
            if text.casefold() not in folded:
                return False
        return True

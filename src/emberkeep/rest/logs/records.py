"""Search in one log over REST: the query parameters that say what to look for, and the records that are found."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.clock import MOST_MS
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.log_records.model import MOST_TEXT_CHARACTERS, MOST_TEXTS, Level, Record, Selection
from emberkeep.log_records.scan import MOST_FOUND_BYTES, MOST_RECORDS, WINDOW, Search
from emberkeep.protocol.rest_logs import LogRecord, LogRecords
from emberkeep.rest.logs.response import FARTHEST, MAX_WAIT
from emberkeep.rest.ports import LogFound, LogSearch

_LEVELS = "|".join(level.value for level in Level)
RECORDS_DOC = (
    f"A reply examines at most {WINDOW // 1024**2} MiB of the log, however large it is, so it may contain no record "
    "although others follow: ask again with `offset` = `end`, until `complete` is true or `end` no longer grows; or "
    "with `before` = `start`, until it is 0. A `start` that is smaller than the given `offset` means that the log was "
    "rotated. A step passes over bytes that are not kept; a record says how many. Times without a zone are in the zone "
    "of the machine where the process runs, or of the JobManager if the log is read from the shared storage. A line "
    "that is still being written is left out."
)


class SelectText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters that select records of logs."""

    text: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=MOST_TEXT_CHARACTERS)]],
        Meta(max_length=MOST_TEXTS, description="Only records that contain this, in any case; may be repeated."),
    ] = []
    level: Annotated[
        str,
        Meta(
            pattern=f"^({_LEVELS})?$",
            description=f"Only records of this level or a more severe one: {_LEVELS.replace('|', ', ')}. Output "
            "without a level is left out.",
        ),
    ] = ""
    since: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_MS,
            description="Time of the oldest record, Unix milliseconds. Output before the first time is left out.",
        ),
    ] = 0
    until: Annotated[
        int, Meta(ge=0, le=MOST_MS, description="Time of the newest record, Unix milliseconds; 0: any.")
    ] = 0

    @property
    def selection(self) -> Selection:
        return Selection(
            texts=tuple(self.text),
            level=Level(self.level) if self.level else None,
            since_ms=self.since,
            until_ms=self.until,
        )


class SelectRecords(SelectText, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a bounded number of records."""

    limit: Annotated[int, Meta(ge=1, le=MOST_RECORDS, description="Maximum number of records in the reply.")] = 500


class ReadRecords(SelectRecords, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a search in one log."""

    offset: Annotated[int, Meta(ge=0, le=FARTHEST, description="Offset of the first byte.")] = 0
    before: Annotated[
        Annotated[int, Meta(ge=0, le=FARTHEST)] | None,
        Meta(description="Instead of `offset`: the last records before this byte. A number beyond the end is the end."),
    ] = None
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for a new line after `offset`.")] = 0.0

    def of(self, job_id: JobId | None) -> LogSearch:
        """Return the search in a log of one job; with None, the log may belong to any job or to none.

        Raises InvalidInput if ``before`` is combined with ``offset`` or ``wait``.
        """
        if self.before is not None and (self.offset or self.wait):
            raise InvalidInput("before cannot be combined with offset or wait", field="before")
        search = Search(
            selection=self.selection,
            offset=self.offset if self.before is None else self.before,
            limit=self.limit,
            most_bytes=MOST_FOUND_BYTES,
            backwards=self.before is not None,
        )
        return LogSearch(search=search, wait=self.wait, job_id=job_id)


def records_reply(result: LogFound) -> LogRecords:
    found = result.found
    return LogRecords(
        records=[record_info(record) for record in found.records],
        start=found.start,
        end=found.end,
        size=max(result.size, found.end),
        complete=result.complete,
        kept_until=result.kept_until_ms,
    )


def record_info(record: Record, log: str = "") -> LogRecord:
    """Return a record as text: bytes that are not UTF-8 are replaced."""
    return LogRecord(
        offset=record.offset,
        size=len(record.data),
        time=record.time,
        level="" if record.level is None else record.level.value,
        text=record.data.decode(errors="replace").rstrip("\r\n"),
        log=log,
    )

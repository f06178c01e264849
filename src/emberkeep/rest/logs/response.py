"""Part of a log over HTTP: the query parameters that select it, and the response that contains it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.protocol.encoding.byte_range import BYTE_RANGE, parse_byte_range
from emberkeep.protocol.rest_logs import (
    LOG_COMPLETE_HEADER,
    LOG_KEPT_UNTIL_HEADER,
    LOG_OFFSET_HEADER,
    LOG_SIZE_HEADER,
)
from emberkeep.rest.ports import LogChunk, LogQuery
from emberkeep.rest.serving.routing import Header

DEFAULT_LIMIT = 1024**2
MAX_LIMIT = 4 * 1024**2
FARTHEST = 2**53
MAX_WAIT = 60

LOG_REPLY_HEADERS = (
    Header(
        LOG_OFFSET_HEADER, "Offset of the body's first byte in the log. Add the body's length to get the next offset."
    ),
    Header(LOG_SIZE_HEADER, "Size of the log in bytes."),
    Header(LOG_COMPLETE_HEADER, "`true`: the body reaches the end of the log, and the log has ended."),
    Header(
        LOG_KEPT_UNTIL_HEADER,
        "Only if the log is read from the shared storage, and its newest lines may be missing there: lines after this "
        "time, in Unix milliseconds, are not kept.",
    ),
)


class ReadLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a log. The reply waits only while there is no byte after ``offset`` and the log may grow."""

    offset: Annotated[
        int,
        Meta(ge=-FARTHEST, le=FARTHEST, description="Offset of the first byte; a negative number counts from the end."),
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="Maximum number of bytes in the reply.")] = DEFAULT_LIMIT
    range: Annotated[
        str,
        Meta(
            pattern=BYTE_RANGE,
            description="Instead of `offset` and `limit`: first and last byte, as in `1000-1999`; `1000-` is from "
            f"there to the end, `-1000` the last 1000. The reply has at most the first {MAX_LIMIT} bytes of the range.",
        ),
    ] = ""
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for new bytes.")] = 0.0

    def of(self, job_id: JobId | None) -> LogQuery:
        """Return the query for a log of one job; with None, the log may belong to any job or to none.

        Raises InvalidInput if ``range`` is malformed or combined with ``offset`` or ``limit``.
        """
        if not self.range:
            return LogQuery(offset=self.offset, limit=self.limit, wait=self.wait, job_id=job_id)
        if self.offset != 0 or self.limit != DEFAULT_LIMIT:
            raise InvalidInput("range cannot be combined with offset or limit", field="range")
        wanted = parse_byte_range(self.range)
        return LogQuery(
            offset=wanted.offset,
            limit=MAX_LIMIT if wanted.count is None else min(wanted.count, MAX_LIMIT),
            wait=self.wait,
            job_id=job_id,
            from_start=False,
        )


def kept_header(chunk: LogChunk) -> dict[str, str]:
    """Return the header that says from when on lines are missing; none if no line is."""
    return {LOG_KEPT_UNTIL_HEADER: str(chunk.kept_until_ms)} if chunk.kept_until_ms else {}


def log_response(chunk: LogChunk) -> web.Response:
    """Return the bytes as plain text that no browser renders as anything else."""
    return web.Response(
        body=chunk.data,
        content_type="text/plain",
        charset="utf-8",
        headers={
            LOG_OFFSET_HEADER: str(chunk.offset),
            LOG_SIZE_HEADER: str(chunk.size),
            LOG_COMPLETE_HEADER: "true" if chunk.complete else "false",
            **kept_header(chunk),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        },
    )

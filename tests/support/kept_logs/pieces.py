"""Pieces of logs, as task managers send them."""

from __future__ import annotations

from emberkeep.adapters.kept_logs.files import StitchedLog
from emberkeep.adapters.kept_logs.segments import compress, digest_of
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.kept_logs.model import KeptLogKey, LogPiece, PieceHeader

JOB = JobId("1" * 32)


def piece(offset: int, data: bytes, *, is_last: bool = False, until_ms: int = 5, source: int | None = None) -> LogPiece:
    header = PieceHeader(
        offset=offset,
        size=len(data),
        source=offset if source is None else source,
        since_ms=1,
        until_ms=until_ms,
        digest=digest_of(data),
        is_last=is_last,
    )
    return LogPiece(header=header, data=compress(data) if data else b"")


def content_of(opened: StitchedLog) -> bytes:
    """Return all that is stored of a log, with the notes about gaps."""
    log = opened.stitched
    return b"".join(log.read(extent, extent.start, 10**9, opened.load) for extent in log.extents)


def key(
    name: str = "driver.stderr", *, job_id: JobId = JOB, attempt: int = 1, task_manager: str = "tm-1"
) -> KeptLogKey:
    return KeptLogKey(job_id=job_id, attempt=attempt, task_manager=TaskManagerId(task_manager), name=name)

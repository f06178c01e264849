"""What jobs of a large console have behind them: 300 events, most of them marks, and 1,000 batches of a stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.chronicle.lines import encode_line
from emberkeep.chronicle.occurrence import Occurrence, What, occurrence_id
from emberkeep.jobs.progress.history import RECORDS_KEPT, ProgressLog
from emberkeep.jobs.progress.records import SourceProgress
from tests.support.progress.records import RECORD

EVENTS: Final = 300  # that are kept of a job
BATCH_MS: Final = 10_000
FILES: Final = "FileStreamSource[file:/data/warehouse/customers/incoming/2026/regions-of-the-north]"
_STATE_ROWS, _STATE_BYTES = 20_000, 8 * 1024**2
_CYCLE: Final[tuple[tuple[What, str, dict[str, str]], ...]] = (
    (What.ATTEMPT_STARTED, "the driver has started", {}),
    (What.STATUS, "RUNNING", {"status": "RUNNING"}),
    (What.SAVEPOINT, "savepoint in /savepoints/orders", {}),
    (What.ALARM_RAISED, "the backlog has grown for 5 minutes", {"kind": "backlog"}),
    (What.EXCEPTION, "task 3 of stage 20 has failed", {}),
    (What.EXECUTORS_ENDED, "executor 3 ended on tm-1: 3 of 4", {"executors": "3", "present": "3", "wanted": "4"}),
    (What.ALARM_CLEARED, "the backlog is small again", {"kind": "backlog"}),
    (What.PERIODIC_SAVEPOINT, "periodic savepoint in /savepoints/orders", {}),
    (What.ATTEMPT_ENDED, "the driver was killed by signal 9", {"cause": "lost"}),
    (What.STATUS, "RESTARTING", {"status": "RESTARTING", "reason": "the driver was killed by signal 9"}),
)


def event_lines(job_id: JobId, now_ms: int) -> list[bytes]:
    """Return the stream of a job that ran for 1,000 batches, with a restart now and then."""
    began = now_ms - RECORDS_KEPT * BATCH_MS
    step = RECORDS_KEPT * BATCH_MS // EVENTS
    events = [Occurrence(what=What.SUBMITTED, message="submitted", job_id=job_id, time_ms=began)]
    for number in range(1, EVENTS - 1):
        what, message, details = _CYCLE[(number - 1) % len(_CYCLE)]
        events.append(
            Occurrence(
                what=what,
                message=f"{message} ({number})",
                job_id=job_id,
                time_ms=began + number * step,
                attempt=1 + (number - 1) // len(_CYCLE),
                details=details,
            )
        )
    running = {"status": "RUNNING"}
    last = events[-1].attempt
    events.append(
        Occurrence(
            what=What.STATUS, message="RUNNING", job_id=job_id, time_ms=now_ms - 20_000, attempt=last, details=running
        )
    )
    return [encode_line(msgspec.structs.replace(each, id=occurrence_id(3, n))) for n, each in enumerate(events)]


class Stream:
    """The query of a job, with a batch every BATCH_MS. ``now_ms`` tells the time.

    ``joins``: it reads a file source, whose offsets are no numbers, together with Kafka's, and drops rows now and then.
    """

    def __init__(self, now_ms: Callable[[], int], *, joins: bool = False) -> None:
        self.log = ProgressLog()
        self._joins = joins
        self._now_ms = now_ms
        self._batches = itertools.count()
        for number in range(RECORDS_KEPT):
            self._add(now_ms() - (RECORDS_KEPT - number) * BATCH_MS)

    def add_batch(self) -> int:
        """Add the batch that has just ended, and return its number."""
        return self._add(self._now_ms() - RECORD.duration_ms)

    def _add(self, triggered_ms: int) -> int:
        number = next(self._batches)
        swing = abs(number % 60 - 30) / 30  # the input comes in waves
        record = msgspec.structs.replace(
            RECORD,
            batch_id=number,
            run_id=f"run-{number // 400}",
            triggered_ms=triggered_ms,
            duration_ms=800 + int(900 * swing),
            phases={
                "latestOffset": 30,
                "walCommit": 40,
                "queryPlanning": 60,
                "addBatch": 500 + int(900 * swing),
                "commitOffsets": 35,
                "triggerExecution": 790 + int(900 * swing),
            },
            rows=2_500 + int(2_500 * swing),
            input_rate=250.0 + 250 * swing,
            state_rows=_STATE_ROWS + 40 * number,
            state_bytes=_STATE_BYTES + 15_000 * number,
            watermark_ms=triggered_ms - 10_000 - int(4_000 * swing),
            late_rows=5 if self._joins and number % 50 == 0 else 0,
        )
        if self._joins:
            left = {"numFilesOutstanding": 5.0 + number % 40, "numBytesOutstanding": 2.0**20 * (5 + number % 40)}
            files = SourceProgress(
                description=FILES, rows=500, input_rate=50.0, processed_rate=300.0 + 100 * swing, metrics=left
            )
            kafka = msgspec.structs.replace(record.sources[0], backlog_rows=int(4_000 * swing))
            record = msgspec.structs.replace(record, sources=(kafka, files))
        self.log.add([record], triggered_ms + record.duration_ms)
        return number

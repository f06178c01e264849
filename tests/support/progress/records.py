"""Progress records as tests need them."""

from __future__ import annotations

import msgspec

from emberkeep.jobs.progress.records import ProgressRecord, SourceProgress

RECORD = ProgressRecord(
    query_id="q-1",
    run_id="run-1",
    name="clicks",
    batch_id=7,
    triggered_ms=1_795_000_000_000,
    duration_ms=800,
    phases={"addBatch": 600, "walCommit": 40, "triggerExecution": 790},
    rows=500,
    input_rate=250.0,
    processed_rate=625.0,
    state_rows=42,
    state_bytes=4096,
    state_commit_ms=31,
    late_rows=3,
    watermark_ms=1_794_999_990_000,
    sources=(
        SourceProgress(
            description="KafkaV2[Subscribe[clicks]]",
            rows=500,
            input_rate=250.0,
            processed_rate=625.0,
            start_offset='{"clicks":{"0":500}}',
            end_offset='{"clicks":{"0":1000}}',
            latest_offset='{"clicks":{"0":2250}}',
            backlog_rows=1250,
        ),
    ),
)


def record(batch: int, **changes: object) -> ProgressRecord:
    """The record of a batch, a second after the one before."""
    begun = RECORD.triggered_ms + 1000 * batch
    return msgspec.structs.replace(RECORD, **{"batch_id": batch, "triggered_ms": begun, **changes})


def measured(batch: int) -> ProgressRecord:
    """The record of a batch whose source reports numbers itself."""
    (source,) = RECORD.sources
    return record(batch, sources=(msgspec.structs.replace(source, metrics={"maxOffsetsBehindLatest": 1250.0}),))

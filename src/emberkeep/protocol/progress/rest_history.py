"""REST bodies about the progress history of a job's streaming queries."""

from __future__ import annotations

from emberkeep.protocol.rest import Duration, Kebab, Millis


class SourceInfo(Kebab, frozen=True, kw_only=True):
    """One source of a query in one report.

    Offsets are JSON as Spark reports them; only the newest record of a query has them, and ``""`` stands for one that
    Spark does not report or that is too long. ``backlog-rows``: rows that were available and not yet read; null unless
    both offsets are numbers, as Kafka's are, or the source reports how much is left. ``metrics``: the numbers that the
    source reports itself, by its own names; older records of a query have only those that say what is left:
    ``numFilesOutstanding``, ``numBytesOutstanding`` and ``maxMsBehindLatest``.
    """

    description: str
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    start_offset: str
    end_offset: str
    latest_offset: str
    backlog_rows: int | None
    backlog_seconds: float | None
    metrics: dict[str, float]


class ProgressInfo(Kebab, frozen=True, kw_only=True):
    """One progress report of a query, as Spark made it.

    - ``recorded``: when it was recorded. The time names the record: no other record of the job has it.
    - ``triggered``: when the batch began. ``duration``: how long it took; ``phases``: Spark's ``durationMs``, of which
      ``triggerExecution`` contains the others.
    - ``state-rows``, ``state-bytes``: in the state stores. ``state-commit-duration``: added over the batch's tasks.
    - ``late-rows``: dropped because they came after the watermark.
    - ``watermark``: null if there is none. ``watermark-gap``: how far it was behind the start of the batch.
    - ``backlog-rows``: of all sources; null unless each source's is known. ``backlog-seconds``: at the processing rate
      of this batch.
    """

    recorded: Millis
    query_id: str
    run_id: str
    name: str
    batch_id: int
    triggered: Millis
    duration: Duration
    phases: dict[str, int]
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    state_rows: int
    state_bytes: int
    state_commit_duration: Duration
    late_rows: int
    watermark: Millis | None
    watermark_gap: Duration | None
    backlog_rows: int | None
    backlog_seconds: float | None
    sources: list[SourceInfo]


class QueryWithHistory(Kebab, frozen=True, kw_only=True):
    """A query that has records. ``name``: ``""`` if it has none. ``oldest``, ``newest``: when they were recorded."""

    query_id: str
    name: str
    records: int
    oldest: Millis
    newest: Millis


class ProgressHistory(Kebab, frozen=True, kw_only=True):
    """A part of a job's progress history.

    ``queries``: all that have records, the one with the newest record first. ``records``: oldest first. ``earlier``:
    true if ``limit`` has cut off older records.
    """

    queries: list[QueryWithHistory]
    records: list[ProgressInfo]
    earlier: bool
